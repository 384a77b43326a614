// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's header shows its Gloo group only to those who say that they have Gloo.
#define USE_C10D_GLOO
#include "tools/bench/groups.h"

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace chainmail::bench {

Candidate make_ours(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                    const std::string& algorithm, const std::string& wire) {
  BackendOptions options;
  options.algorithm = algorithm;
  options.wire = wire;
  options.timeout = std::chrono::minutes{2};
  options.group_name = "bench";
  return {"chainmail", make_process_group(store, ranks.rank, ranks.size, options)};
}

Candidate make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks) {
  using c10d::ProcessGroupGloo;
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  auto options = ProcessGroupGloo::Options::create();
  options->timeout = std::chrono::minutes{2};
  options->devices.push_back(ranks.nodes == 1
                                 ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : ProcessGroupGloo::createDefaultDevice());
  const auto gloo =
      c10::make_intrusive<ProcessGroupGloo>(own_keys, ranks.rank, ranks.size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own_keys, ranks.rank, ranks.size);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::intrusive_ptr<c10d::Backend>(gloo));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return {"gloo", std::move(group)};
}

}  // namespace chainmail::bench
