// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Torch's own process groups behind the engine's interface, so that a program can compare them with
// ours by changing a name. Free of torch; implemented in plugin/c10d.

#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/engine/device/device_group.h"
#include "ops/engine/group.h"
#include "ops/topology.h"

namespace chainmail::internal {

enum class TorchBackend { kGloo, kNccl };

[[nodiscard]] const char* to_string(TorchBackend backend) noexcept;  // "gloo"

/// Nothing for names of ours.
[[nodiscard]] std::optional<TorchBackend> parse_torch_backend(std::string_view name) noexcept;

/// Throws InvalidArgument for what the backend cannot do, before a job is joined: a wire format or
/// a carrier of ours; NCCL without CUDA.
void check_torch_group(TorchBackend backend, const ops::GroupOptions& options);

/// A group for CPU tensors (kGloo) over the ranks of `topology`, which join through the job's
/// store; collective over them. It carries what the training layer asks for: all_reduce (sum, avg,
/// min, max, product), broadcast, all_gather of equal parts and barriers, one after another;
/// everything else is InvalidArgument. Loopback on one node; between nodes GLOO_SOCKET_IFNAME, else
/// options.interface, else chosen. Throws what check_torch_group throws; PeerError when the ranks
/// cannot meet.
[[nodiscard]] std::shared_ptr<ops::Group> make_torch_group(TorchBackend backend, int rank,
                                                           ops::Topology topology,
                                                           ops::GroupOptions options);

/// Torch's NCCL for the tensors on a GPU of the ranks of `group`, which join through the job's
/// store. The `number`-th of the group, from 0. It carries all_reduce on the current stream. Throws
/// InvalidArgument when CUDA or the library is missing, PeerError when torch refuses.
[[nodiscard]] std::shared_ptr<ops::DeviceGroup> make_torch_device_group(const ops::Group& group,
                                                                        int device, int number);

}  // namespace chainmail::internal
