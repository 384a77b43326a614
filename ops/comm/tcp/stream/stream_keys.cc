// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/stream_keys.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace chainmail::ops {
namespace {

using internal::SecretKey;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Texts with their lengths: no two lists of inputs give the same bytes.
class Info {
 public:
  Info& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto bytes = bytes_of(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Info& number(std::uint32_t value) {
    for (unsigned i = 0; i < 4; ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
    }
    return *this;
  }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

SecretKey key_of(const SecretKey& root, const KeyInputs& inputs, std::string_view sender) {
  Info info;
  info.text("chainmail records").text(inputs.protocol).text(sender).text(inputs.group);
  info.number(inputs.generation).number(static_cast<std::uint32_t>(inputs.size));
  info.number(static_cast<std::uint32_t>(inputs.dialer));
  info.number(static_cast<std::uint32_t>(inputs.acceptor));
  info.number(static_cast<std::uint32_t>(inputs.encryption));
  SecretKey key;
  internal::hkdf_expand(root, info.bytes(), key.bytes());
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
