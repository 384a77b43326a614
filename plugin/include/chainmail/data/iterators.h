// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Batches: out of tensors in memory, from one rank to all (ChainerMN's create_multi_node_iterator),
// and in one order on all ranks (create_synchronized_iterator).
//
// An iterator has next(), which returns nothing once at the end of each epoch, and state() and
// load_state() of a SamplerState. One thread at a time.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>
#include <chainmail/data/sampler.h>

namespace chainmail {

/// A batch: one tensor for each tensor of the dataset.
using TensorList = std::vector<at::Tensor>;

/// How a TensorIterator makes batches.
struct TensorIteratorOptions {
  std::int64_t batch_size = 100;  ///< per rank
  /// Of the first tensor's batches; bytes of images become numbers a batch at a time, so that the
  /// dataset takes a quarter of the memory.
  c10::ScalarType data_type = c10::ScalarType::Float;
  double scale = 1.0;                                   ///< factor of the first, converted
  c10::ScalarType target_type = c10::ScalarType::Long;  ///< of all others
};

/// Batches of tensors that lie in memory, such as images and labels: one selection per tensor and
/// batch, ten times faster than a data loader that stacks single samples. Batches are on the device
/// that their tensor is on. Local.
class CHAINMAIL_API TensorIterator {
 public:
  /// Sample i is row i of every tensor; they are shared, not copied.
  /// @throws InvalidArgument  not as many rows as the sampler has samples, batch_size < 1
  TensorIterator(TensorList tensors, MultiNodeSampler sampler, TensorIteratorOptions options = {});

  /// This rank's next batch, [rows, ...] of each tensor; nothing once at the end of each epoch.
  [[nodiscard]] std::optional<TensorList> next();
  /// Where its sampler is.
  [[nodiscard]] SamplerState state() const { return sampler_.state(); }
  /// Goes on where the iterator that gave `state` was.
  /// @throws InvalidArgument  a position outside of this dataset
  void load_state(const SamplerState& state);
  /// How many batches next() gives this rank in a whole epoch.
  [[nodiscard]] std::int64_t batches_per_epoch() const;

 private:
  TensorList tensors_;
  MultiNodeSampler sampler_;
  TensorIteratorOptions options_;
  bool is_at_end_ = false;
};

/// Gives every rank the batches that one of them draws. Created by create_multi_node_iterator.
class CHAINMAIL_API MultiNodeIterator {
 public:
  /// What the master draws from; ignored on other ranks.
  struct Source {
    std::function<std::optional<TensorList>()> next;      ///< the next batch, or the end
    std::function<SamplerState()> state;                  ///< after the last batch
    std::function<void(const SamplerState&)> load_state;  ///< goes back to a state
  };

  /// Does what create_multi_node_iterator() says.
  MultiNodeIterator(Source source, std::shared_ptr<Communicator> communicator, int rank_master);

  /// The master's next batch, of any types, shapes and number of tensors, on every rank; or nothing
  /// at the end of its epoch. Collective.
  /// @throws InvalidArgument  on all ranks: what the master's iterator threw
  [[nodiscard]] std::optional<TensorList> next();
  /// The state of the master's iterator after its last batch.
  const SamplerState& state() const noexcept { return state_; }
  /// Sets the state of the master's iterator; what others pass is ignored. Collective.
  void load_state(const SamplerState& state);

 private:
  template <typename Action>
  std::optional<TensorList> on_master(const Action& action);

  Source source_;
  std::shared_ptr<Communicator> communicator_;
  int rank_master_;
  SamplerState state_;
};

/// `iterator` is needed on rank_master only, null elsewhere. Collective.
template <typename Iterator>
[[nodiscard]] MultiNodeIterator create_multi_node_iterator(
    std::shared_ptr<Iterator> iterator, const std::shared_ptr<Communicator>& communicator,
    int rank_master = 0) {
  MultiNodeIterator::Source source;
  if (iterator) {
    source.next = [iterator] { return iterator->next(); };
    source.state = [iterator] { return iterator->state(); };
    source.load_state = [iterator](const SamplerState& state) { iterator->load_state(state); };
  }
  return MultiNodeIterator(std::move(source), communicator, rank_master);
}

/// Puts `iterator`, made as for a single rank, where rank 0's is: all ranks then draw the same
/// batches, each by itself. Works for samplers too. Collective.
template <typename Iterator>
[[nodiscard]] Iterator create_synchronized_iterator(
    Iterator iterator, const std::shared_ptr<Communicator>& communicator) {
  internal::require_communicator(communicator, "create_synchronized_iterator");
  iterator.load_state(communicator->bcast_obj(iterator.state()));
  return iterator;
}

}  // namespace chainmail
