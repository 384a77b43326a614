// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The keys of a connection: HKDF-SHA256 of the job's secret, salted with both ends' random numbers,
// for one direction between two ranks of one group and generation, in one mode.
//
// Pure; any thread.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/crypto/keys.h"
#include "ops/types.h"

namespace chainmail::ops {

/// What one end of a connection seals and opens with. Each key is used for nothing else.
struct StreamKeys {
  internal::SecretKey send;
  internal::SecretKey receive;
};

/// Everything that the keys depend on. Both ends know it once they have proven who they are.
struct KeyInputs {
  std::string_view secret;    ///< of the job
  std::string_view protocol;  ///< name and version
  std::string_view group;
  std::uint32_t generation = 0;
  int size = 0;  ///< of the group
  int dialer = 0;
  int acceptor = 0;
  Encryption encryption = Encryption::kOff;
  internal::Nonce nonce_of_dialer{};
  internal::Nonce nonce_of_acceptor{};
};

[[nodiscard]] StreamKeys derive_stream_keys(const KeyInputs& inputs, bool is_dialer);

}  // namespace chainmail::ops
