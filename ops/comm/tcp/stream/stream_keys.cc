// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/stream_keys.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"

namespace chainmail::ops {
namespace {

using internal::SecretKey;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// With its length: no two lists of inputs give the same bytes.
void append_text(std::string& out, std::string_view text) {
  internal::append_number(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

SecretKey key_of(const SecretKey& root, const KeyInputs& inputs, std::string_view sender) {
  std::string info;
  for (const std::string_view text :
       {std::string_view("chainmail records"), inputs.protocol, sender, inputs.group}) {
    append_text(info, text);
  }
  for (const auto number :
       {inputs.generation, static_cast<std::uint32_t>(inputs.size),
        static_cast<std::uint32_t>(inputs.dialer), static_cast<std::uint32_t>(inputs.acceptor),
        static_cast<std::uint32_t>(inputs.encryption)}) {
    internal::append_number(info, number);
  }
  SecretKey key;
  internal::hkdf_expand(root, info, key.bytes());
  return key;
}

}  // namespace

StreamKeys derive_stream_keys(const KeyInputs& inputs, bool is_dialer) {
  std::array<std::byte, 2 * sizeof(internal::Nonce)> salt{};
  std::byte* out =
      std::copy(inputs.nonce_of_dialer.begin(), inputs.nonce_of_dialer.end(), salt.data());
  std::copy(inputs.nonce_of_acceptor.begin(), inputs.nonce_of_acceptor.end(), out);
  const SecretKey root = internal::hkdf_extract(salt, bytes_of(inputs.secret));
  SecretKey of_dialer = key_of(root, inputs, "dialer");
  SecretKey of_acceptor = key_of(root, inputs, "acceptor");
  if (is_dialer) return {std::move(of_dialer), std::move(of_acceptor)};
  return {std::move(of_acceptor), std::move(of_dialer)};
}

}  // namespace chainmail::ops
