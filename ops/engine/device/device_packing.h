// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory that a device group hands out: tables of packed tensors, and buffers that NCCL knows.
//
// Any thread.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ops/comm/nccl/nccl_comm.h"
#include "ops/engine/device/device_group.h"

namespace chainmail::ops {

/// Waits for the device once, for the table to be there.
[[nodiscard]] std::unique_ptr<DevicePack> make_device_pack(DeviceApi& api, int device,
                                                           std::span<const PackedTensor> tensors);

/// Memory of NCCL's own, registered with `comms`, which deregister it when they or it go.
[[nodiscard]] std::shared_ptr<std::byte> allocate_for_nccl(
    DeviceLibrary& library, int device, const std::vector<std::shared_ptr<NcclComm>>& comms,
    std::size_t bytes);

}  // namespace chainmail::ops
