// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// PMI-1, the text protocol by which MPICH, MVAPICH and Intel MPI speak with their process manager:
// one line per command, "cmd=put kvsname=k key=a value=b". Pure functions, thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

/// What get_maxes answers; longer ones are refused.
inline constexpr std::size_t kPmi1MaxName = 256;
inline constexpr std::size_t kPmi1MaxKey = 64;
inline constexpr std::size_t kPmi1MaxValue = 1024;
/// A line with all of these and some words.
inline constexpr std::size_t kPmi1MaxLine = 4096;

/// The words of a line. Throws SystemError(EPROTO) without a "cmd=" or "mcmd=".
[[nodiscard]] std::map<std::string, std::string> parse_pmi1(std::string_view line);

/// Where ranks are, as MPICH reads it: "(vector,(0,1,2),(1,1,2))", blocks of first node, number of
/// nodes, ranks on each.
[[nodiscard]] std::string pmi1_process_mapping(const std::vector<std::uint32_t>& node_of_rank);

}  // namespace chainmail::launch
