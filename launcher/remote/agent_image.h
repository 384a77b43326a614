// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// This program as it is sent to hosts that do not have it. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace chainmail::launch {

/// Version, version of the protocol and build id of this program in one word without blanks. Two
/// programs with the same word are the same build; up to the last '/' it names what may talk to
/// each other.
[[nodiscard]] std::string agent_identity();

/// How many bytes of an ELF file the kernel needs to run it: all up to the end of the last segment,
/// without section names and debug information, which are most of it. `head` is its beginning with
/// the program headers. Nothing for what is no 64-bit ELF file or contradicts itself. Pure.
[[nodiscard]] std::optional<std::size_t> loadable_bytes(std::string_view head,
                                                        std::size_t file_bytes);

/// The checksum that POSIX defines for cksum, which every host has. Pure.
[[nodiscard]] std::uint32_t posix_checksum(std::string_view bytes);

struct AgentImage {
  std::shared_ptr<const std::string> bytes;
  std::string checksum;  ///< as cksum prints it: number and length
  std::string loader;    ///< the program that the kernel has load it; empty: none
};

/// The path of the program that the kernel has load an ELF file; `head` is its beginning. Empty
/// where there is none, or it lies elsewhere. Pure.
[[nodiscard]] std::string loader_of(std::string_view head);

/// Throws SystemError.
[[nodiscard]] AgentImage read_agent_image(const std::string& path);

}  // namespace chainmail::launch
