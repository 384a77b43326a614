// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's header shows its Gloo group only to those who say that they have Gloo.
#define USE_C10D_GLOO
#include "tools/bench/contestants/groups.h"

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <memory>

namespace chainmail::bench {
namespace {

std::shared_ptr<::gloo::transport::Device> make_device(const Ranks& ranks) {
  using c10d::ProcessGroupGloo;
  if (ranks.nodes == 1) return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  // torch.distributed reads it in Python only.
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  return interface != nullptr ? ProcessGroupGloo::createDeviceForInterface(interface)
                              : ProcessGroupGloo::createDefaultDevice();
}

}  // namespace

Candidate make_ours(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                    const std::string& algorithm, const std::string& wire,
                    const std::string& name) {
  BackendOptions options;
  options.algorithm = algorithm;
  options.wire = wire;
  options.timeout = std::chrono::minutes{2};
  options.group_name = "bench/" + name;
  return {name, make_process_group(store, ranks.rank, ranks.size, options), wire};
}

Candidate make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Ranks& ranks,
                    const std::string& name) {
  using c10d::ProcessGroupGloo;
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>("bench/" + name, store);
  auto options = ProcessGroupGloo::Options::create();
  options->timeout = std::chrono::minutes{2};
  options->devices.push_back(make_device(ranks));
  const auto gloo =
      c10::make_intrusive<ProcessGroupGloo>(own_keys, ranks.rank, ranks.size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own_keys, ranks.rank, ranks.size);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::intrusive_ptr<c10d::Backend>(gloo));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return {name, std::move(group)};
}

}  // namespace chainmail::bench
