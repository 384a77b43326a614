// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <chrono>
#include <utility>

#include "plugin/c10d/torch_backends/torch_nccl.h"
#include "tools/bench/contestants/groups.h"

namespace chainmail::bench {

Candidate make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                    const std::string& name) {
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>("bench/" + name, store);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own_keys, ranks.rank, ranks.size);
  group->setBackend(
      c10::kCUDA, c10d::ProcessGroup::BackendType::NCCL,
      internal::make_torch_nccl(own_keys, ranks.rank, ranks.size, std::chrono::minutes{2}));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  return {name, std::move(group)};
}

}  // namespace chainmail::bench
