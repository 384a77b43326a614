// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The exception of <chainmail/checkpoint.h>. Thread-safe (a value).

#pragma once

#include <string>

#include <chainmail/error.h>

namespace chainmail {

/// A checkpoint cannot be written, is damaged or incomplete, or holds something else than the
/// program asks for; names the file. What lies on disk is untouched, and the communicator usable.
class CHAINMAIL_API CheckpointError : public Error {
 public:
  /// `message` is returned by what().
  explicit CheckpointError(const std::string& message);
  ~CheckpointError() override;
};

}  // namespace chainmail
