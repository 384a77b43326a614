// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/shared_parameters.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "base/bytes.h"
#include "base/log.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/sharding/slice_gather.h"

namespace chainmail::internal {

namespace {

// Whole cache lines: where a slice ends between two parameters, its owner writes no other's.
constexpr std::size_t kPlaceBytes = 64;

void check_places(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.is_cpu()) {
      throw InvalidArgument("share_parameters: parameter '" + parameter.name + "' is on " +
                            parameter.tensor.device().str() +
                            ", and only memory of the host can be shared; leave it out");
    }
    if (!parameter.tensor.is_non_overlapping_and_dense()) {
      throw InvalidArgument("share_parameters: the elements of parameter '" + parameter.name +
                            "' are not in a row; make it contiguous()");
    }
  }
}

void check_memory(Communicator& communicator, bool has_memory) {
  const std::vector<int> has = communicator.allgather_obj(has_memory ? 1 : 0);
  const auto without = std::ranges::find(has, 0);
  if (without == has.end()) return;
  throw InvalidArgument(
      "share_parameters: rank " + std::to_string(without - has.begin()) +
      " and the others of its node cannot map each other's memory (its log says why; "
      "CHAINMAIL_LOCAL must be shm): leave .share_parameters out");
}

at::Tensor tensor_at(const std::shared_ptr<std::byte>& memory, std::size_t begin,
                     const at::Tensor& like) {
  return at::from_blob(
      memory.get() + begin, like.sizes(), like.strides(), [memory](void* /*data*/) {},
      c10::TensorOptions(like.scalar_type()));
}

bool lies_at(const at::Tensor& parameter, const at::Tensor& place) {
  return parameter.const_data_ptr() == place.const_data_ptr();
}

}  // namespace

SharedParameters::~SharedParameters() {
  try {
    release();
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning,
             std::string("parameters stay in memory shared with other ranks: ") + failure.what());
  }
}

void SharedParameters::share(const std::vector<NamedTensor>& parameters) {
  const at::NoGradGuard no_grad;
  check_places(parameters);
  std::vector<std::size_t> begins;
  std::size_t bytes = 0;
  for (const NamedTensor& parameter : parameters) {
    begins.push_back(bytes);
    bytes += round_up(parameter.tensor.nbytes(), kPlaceBytes);
  }
  const auto memory =
      ops::allocate_common(*communicator_->impl().group, std::max(bytes, kPlaceBytes));
  check_memory(*communicator_, memory != nullptr);
  std::vector<Placed> placed;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& parameter = parameters[p].tensor;
    placed.push_back({parameter, tensor_at(memory, begins[p], parameter.detach())});
    if (communicator_->intra_rank() == 0) placed.back().place.copy_(parameter.detach());
  }
  meet();
  for (const Placed& one : placed) one.parameter.set_data(one.place);
  placed_ = std::move(placed);
}

void SharedParameters::release() {
  const at::NoGradGuard no_grad;
  for (const Placed& one : std::exchange(placed_, {})) {
    // Converted, or given other memory by the program: nothing of it is shared.
    if (!lies_at(one.parameter, one.place)) continue;
    one.parameter.set_data(one.place.clone());
  }
}

// An exchange of nothing that matters, inside the node: no rank has all before all have come.
void SharedParameters::meet() {
  ops::Group& group = *communicator_->impl().group;
  const ops::Topology& topology = group.topology();
  if (topology.size() == topology.node_count()) return;
  const auto owners = static_cast<std::size_t>(topology.min_local_size());
  auto cut = std::make_shared<ops::NodeCut>();
  cut->bounds.clear();
  for (std::size_t owner = 0; owner <= owners; ++owner) cut->bounds.push_back(owner);
  const at::Tensor row =
      at::zeros({static_cast<std::int64_t>(owners)}, c10::TensorOptions(c10::kByte));
  gather_now(group, row, std::move(cut), "parameters in shared memory");
}

void SharedParameters::bring_back(
    const std::function<void(const at::Tensor&, const at::Tensor&)>& take) {
  for (const Placed& one : placed_) {
    if (one.parameter.numel() == 0 || lies_at(one.parameter, one.place)) continue;
    take(one.parameter, one.place);
    one.parameter.set_data(one.place);
  }
}

}  // namespace chainmail::internal
