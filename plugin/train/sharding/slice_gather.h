// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the owners of slices give to the other ranks: parameters, sums for the norm, an optimizer's
// state. It stays inside each node, and all nodes have the same, unless slices are cut over the
// nodes.
//
// One thread per rank. Collective.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

#include "ops/engine/group.h"
#include "ops/node_cut.h"
#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/sharding/state/parameter_state.h"

namespace chainmail::internal {

/// Starts giving all slices of `flat`, a dense row in host memory, to every rank: those of its own
/// node, or with a cut over the nodes those of all. `what` is for messages.
[[nodiscard]] std::shared_ptr<ops::Operation> start_gather(ops::Group& group,
                                                           const at::Tensor& flat,
                                                           std::shared_ptr<const ops::NodeCut> cut,
                                                           const char* what);

/// The same, and waits for it.
void gather_now(ops::Group& group, const at::Tensor& flat, std::shared_ptr<const ops::NodeCut> cut,
                const char* what);

/// The elements `begin` to `end` of `parameter`, which is dense, in the order of memory. Local.
[[nodiscard]] at::Tensor row_of(const at::Tensor& parameter, std::size_t begin, std::size_t end);

/// The slices of a bucket without its marks, all of them common. Local.
[[nodiscard]] std::shared_ptr<const ops::NodeCut> slices_of_gradients(const GradientBucket& bucket);

/// Copies all parameters of a bucket out of a row like it in which they have been gathered, but
/// slice `own`, which is this rank's. Local.
void take_parameters(const GradientBucket& bucket, const at::Tensor& row, std::size_t own);

/// Where the norm's sums of blocks lie while they are gathered: each owner's in a row. Positions
/// are local.
class NormLayout {
 public:
  explicit NormLayout(const std::vector<GradientBucket>& buckets);
  std::size_t size() const noexcept { return size_; }
  /// Of the first block of a parameter: its blocks follow.
  std::size_t position(std::size_t bucket, std::size_t index) const;
  /// Gives every rank the sums of all owners; those that are not this rank's are 0 before.
  void gather(ops::Group& group, std::span<double> sums) const;

 private:
  std::vector<std::vector<std::size_t>> positions_;
  std::vector<std::vector<std::size_t>> owned_;  ///< per owner: positions of its blocks
  std::size_t size_ = 0;
  bool is_over_nodes_ = false;
};

/// Puts the states of slices together, parameter by parameter.
class StateGather {
 public:
  /// An own part of parameter `index` of a bucket.
  struct Place {
    std::size_t bucket = 0;
    std::size_t index = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  StateGather(Communicator& communicator, const GradientExchange& exchange)
      : communicator_(communicator), exchange_(exchange) {}

  /// This rank's. Local.
  void add(const Place& place, ParameterState state);
  /// Calls use(parameter, state) for every parameter that has state anywhere.
  void run(const std::function<void(const at::Tensor&, ParameterState)>& use);

 private:
  using Key = std::pair<std::size_t, std::size_t>;  ///< bucket and index
  /// Step, and of each tensor its dtype, or -1 where it is undefined.
  using Record = std::vector<std::int64_t>;

  std::map<Key, Record> find_records();
  at::Tensor gather_one(const Key& key, std::size_t tensor, c10::ScalarType dtype);

  Communicator& communicator_;
  const GradientExchange& exchange_;
  std::map<Key, std::pair<Place, ParameterState>> own_;
};

}  // namespace chainmail::internal
