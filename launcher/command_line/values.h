// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads the values of options. `flag` is the option as the user wrote it, for the message; all
// throw UsageError. Pure, thread-safe.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// A number of ranks, 1 to 65536.
[[nodiscard]] int parse_count(const std::string& flag, const std::string& text);

/// Whatever is not empty.
[[nodiscard]] std::string parse_text(const std::string& flag, const std::string& text);

/// 0 to 65536.
[[nodiscard]] int parse_limit(const std::string& flag, const std::string& text);

/// A number, or torchrun's words: "gpu" is `gpus`, "cpu" nothing, which is a rank per slot, and
/// "auto" the first that there is.
[[nodiscard]] std::optional<int> parse_per_node(const std::string& flag, const std::string& text,
                                                int gpus);
/// NVIDIA's GPUs in the folder of devices; not pure.
[[nodiscard]] int gpus_here(const std::string& devices);

/// "30", "1.5", "90s", "10m", "2h".
[[nodiscard]] std::chrono::milliseconds parse_duration(const std::string& flag,
                                                       const std::string& text);

/// "NAME" or "NAME=value".
[[nodiscard]] ExportedVariable parse_variable(const std::string& flag, const std::string& text);

/// "NAME=DIR", with an absolute folder.
[[nodiscard]] ExportedVariable parse_mount(const std::string& flag, const std::string& text);

/// A rank, "all" or "none".
[[nodiscard]] InputTarget parse_input_target(const std::string& flag, const std::string& text);

/// "core", "socket:overload-allowed".
void apply_bind_to(const std::string& flag, const std::string& text, Options& options);

/// "slot", "node", "socket", "ppr:2:node", "slot:pe=4": where ranks go, in mpirun's words. A
/// number per node is `application`'s.
void apply_map_by(const std::string& flag, const std::string& text, Options& options,
                  Application& application);

/// "auto", "pmix", "pmi1" or "none".
[[nodiscard]] MpiMode parse_mpi(const std::string& flag, const std::string& text);

/// "slot" or "node".
[[nodiscard]] MapBy parse_rank_by(const std::string& flag, const std::string& text);

/// Shards of a step: 1 to 65536.
[[nodiscard]] std::uint32_t parse_shards(const std::string& flag, const std::string& text);

/// "auto" (nothing), "no" (0), or a width from 2.
[[nodiscard]] std::optional<std::uint32_t> parse_tree(const std::string& flag,
                                                      const std::string& text);

/// An absolute path for the ranks' working directory.
[[nodiscard]] std::string parse_directory(const std::string& flag, const std::string& text);

/// Words between commas, none empty.
[[nodiscard]] std::vector<std::string> split_list(const std::string& flag, const std::string& text);

}  // namespace chainmail::launch
