// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Operations on GPU tensors: queued on a stream, not waited for. What the CPU path packs and
// unpacks is packed and unpacked here, too, on the stream before and after the collective.
//
// Thread rule: any thread; a DeviceBatch belongs to one.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin/c10d/backend/group_context.h"
#include "plugin/c10d/device/device_context.h"
#include "plugin/c10d/work/api.h"

namespace chainmail::internal {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using PayloadPtr = std::shared_ptr<Payload>;

/// Coalesced operations. Sends and receives must reach NCCL together, or they wait for each other.
struct DeviceBatch {
  std::shared_ptr<const DeviceContext> context;  ///< null: none yet
  std::vector<ops::Collective> transfers;
  std::vector<PayloadPtr> payloads;  ///< of the transfers
  std::vector<at::Tensor> inputs;
  WorkPtr last;  ///< of the other operations
};

class DeviceIssuer {
 public:
  /// `group` outlives this object. `make_device_group`: unset, that of the CUDA library.
  DeviceIssuer(GroupContext& group, DeviceContexts::Maker make_device_group);

  /// `collective` is complete. With a `batch`, transfers are kept for end_batch() and give null.
  WorkPtr issue(const Call& call, at::TensorList inputs, ops::Collective collective,
                const PayloadPtr& payload, DeviceBatch* batch);
  WorkPtr end_batch(DeviceBatch batch);
  DeviceContexts& contexts() noexcept { return contexts_; }

 private:
  std::shared_ptr<ops::DeviceGroup> make_device_group(c10::Device device, int number) const;
  WorkPtr queue(const Call& call, const DeviceContext& context,
                std::span<const ops::Collective> collectives, std::span<const PayloadPtr> payloads,
                std::vector<at::Tensor> inputs);

  GroupContext& group_;
  DeviceContexts contexts_;
  std::atomic<std::uint64_t> sequence_{0};
};

}  // namespace chainmail::internal
