// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <memory>

#include "base/error.h"
#include "base/shared_library.h"
#include "ops/engine/plan/plan.h"
#include "plugin/c10d/torch_backends/nccl/nccl_library.h"
#include "plugin/c10d/torch_backends/torch_device_group.h"
#include "plugin/c10d/torch_backends/torch_nccl.h"
#include "plugin/cuda/cuda_support.h"
#include "plugin/job/torch_group.h"

namespace chainmail::internal {
namespace {

MakeTorchNccl open_torch_nccl(const std::string& who) {
  require_cuda(who);
  const LibraryOnDemand library(
      who, reinterpret_cast<const void*>(&open_torch_nccl), kTorchNcclFile,
      "It is built where nvcc, nccl.h and a LibTorch for CUDA are (CHAINMAIL_CUDA=ON)");
  return library.ask<MakeTorchNccl>(kMakeTorchNccl, [](MakeTorchNccl make) { return make; });
}

}  // namespace

void require_torch_nccl(const std::string& who) { static_cast<void>(open_torch_nccl(who)); }

c10::intrusive_ptr<c10d::Backend> make_torch_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size,
                                                  std::chrono::milliseconds timeout) {
  c10::intrusive_ptr<c10d::Backend> backend;
  open_torch_nccl("torch's NCCL")(store, rank, size, timeout, backend);
  return backend;
}

std::shared_ptr<ops::DeviceGroup> make_torch_device_group(const ops::Group& group, int device,
                                                          int number) {
  const ops::GroupOptions& options = group.options();
  const std::string who = "communicator 'nccl' on rank " + std::to_string(group.rank());
  ops::check_unprotected_transport(
      options, group.topology(), "torch's NCCL",
      "use one of Chainmail's own communicators with tensors on the CPU");
  try {
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>("nccl/" + std::to_string(options.generation) + "/" +
                                                   options.name + "/" + std::to_string(number),
                                               make_job_store(options.timeout));
    return std::make_shared<TorchDeviceGroup>(
        make_torch_nccl(store, group.rank(), group.size(), options.timeout),
        c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), options.timeout);
  } catch (const c10::Error& failure) {
    throw PeerError(who + " on " + options.host + ": " + failure.what_without_backtrace());
  }
}

}  // namespace chainmail::internal
