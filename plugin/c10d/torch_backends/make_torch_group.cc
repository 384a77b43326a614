// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's header shows its Gloo group only to those who say that they have Gloo.
#define USE_C10D_GLOO
#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/net/socket.h"
#include "ops/engine/plan/plan.h"
#include "plugin/c10d/torch_backends/torch_group.h"
#include "plugin/c10d/torch_backends/torch_nccl.h"
#include "plugin/job/torch_group.h"

namespace chainmail::internal {
namespace {

std::shared_ptr<::gloo::transport::Device> gloo_device(const ops::Topology& topology,
                                                       const std::string& interface) {
  using c10d::ProcessGroupGloo;
  if (topology.node_count() == 1) return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  const char* const torchs = std::getenv("GLOO_SOCKET_IFNAME");
  if (torchs != nullptr) return ProcessGroupGloo::createDeviceForInterface(torchs);
  // "10.0.0.1:0", "[fd00::1]:0"
  std::string address = choose_address(interface).to_string();
  address.resize(address.rfind(':'));
  if (address.front() == '[') address = address.substr(1, address.size() - 2);
  return ProcessGroupGloo::createDeviceForHostname(address);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(int rank, const ops::Topology& topology,
                                            const ops::GroupOptions& options) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>(
      "gloo/" + std::to_string(options.generation) + "/" + options.name,
      make_job_store(options.timeout));
  auto how = c10d::ProcessGroupGloo::Options::create();
  how->timeout = options.timeout;
  how->devices.push_back(gloo_device(topology, options.interface));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, topology.size(), how);
}

}  // namespace

const char* to_string(TorchBackend backend) noexcept {
  switch (backend) {
    case TorchBackend::kGloo:
      return "gloo";
    case TorchBackend::kNccl:
      return "nccl";
  }
  return "?";
}

std::optional<TorchBackend> parse_torch_backend(std::string_view name) noexcept {
  if (name == "gloo") return TorchBackend::kGloo;
  if (name == "nccl") return TorchBackend::kNccl;
  return std::nullopt;
}

void check_torch_group(TorchBackend backend, const ops::GroupOptions& options) {
  const std::string name = std::string("communicator '") + to_string(backend) + "'";
  if (options.wire != ops::WireFormat::kNative) {
    throw InvalidArgument(name + " is torch's own and sends gradients as they are, not as " +
                          to_string(options.wire) +
                          "; leave allreduce_grad_dtype out, or use one of Chainmail's own");
  }
  if (options.cross != ops::CrossTransport::kTcp) {
    throw InvalidArgument(name + " is torch's own and cannot be carried by " +
                          to_string(options.cross) + "; use one of Chainmail's own");
  }
  switch (backend) {
    case TorchBackend::kGloo:
      return;
    case TorchBackend::kNccl:
      return require_torch_nccl(name);
  }
}

std::shared_ptr<ops::Group> make_torch_group(TorchBackend backend, int rank, ops::Topology topology,
                                             ops::GroupOptions options) {
  check_torch_group(backend, options);
  if (backend != TorchBackend::kGloo) {
    throw InvalidArgument(std::string("communicator '") + to_string(backend) +
                          "' reduces tensors on GPUs only; use 'gloo' for CPU tensors");
  }
  ops::check_unprotected_transport(options, topology, "torch's Gloo",
                                   "use one of Chainmail's own communicators");
  try {
    auto gloo = make_gloo(rank, topology, options);
    return std::make_shared<TorchGroup>(std::move(gloo), std::move(topology), std::move(options));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    const auto* torchs = dynamic_cast<const c10::Error*>(&failure);
    throw PeerError("gloo on rank " + std::to_string(rank) + " on " + options.host +
                    ": the ranks of group " + options.name + " cannot meet: " +
                    (torchs != nullptr ? torchs->what_without_backtrace() : failure.what()));
  }
}

}  // namespace chainmail::internal
