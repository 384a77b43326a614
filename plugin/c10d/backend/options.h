// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Chainmail's options in the form in which c10d hands them from a group to the groups split off it.

#pragma once

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>

namespace chainmail::internal {

inline constexpr char kBackendName[] = "chainmail";
/// Algorithms that only GPUs have: flat, and hierarchical with the hop between nodes on the host.
inline constexpr char kPureNccl[] = "pure_nccl";
inline constexpr char kNonCudaAware[] = "non_cuda_aware";

/// c10d's own members hold where both name the same thing (timeout, group_name).
struct ChainmailOptions final : c10d::Backend::Options {
  explicit ChainmailOptions(BackendOptions options)
      : Options(kBackendName, options.timeout), ours(std::move(options)) {
    group_name = ours.group_name;
  }
  BackendOptions ours;
};

}  // namespace chainmail::internal
