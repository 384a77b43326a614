// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <exception>
#include <string>
#include <tuple>
#include <utility>

#include <chainmail/data/iterators.h>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

MultiNodeIterator::MultiNodeIterator(Source source, std::shared_ptr<Communicator> communicator,
                                     int rank_master)
    : source_(std::move(source)),
      communicator_(std::move(communicator)),
      rank_master_(rank_master) {
  internal::require_communicator(communicator_, "create_multi_node_iterator");
  communicator_->impl().check_root(rank_master, "create_multi_node_iterator");
  on_master([]() -> std::optional<TensorList> { return std::nullopt; });  // the first state
}

// Runs `action` on the master and gives all ranks what it returned and where the master is then, or
// what it threw.
template <typename Action>
std::optional<TensorList> MultiNodeIterator::on_master(const Action& action) {
  using Message = std::tuple<std::string, SamplerState, std::optional<TensorList>>;
  Message message;
  auto& [problem, state, batch] = message;
  if (communicator_->rank() == rank_master_) {
    try {
      if (!source_.next) throw InvalidArgument("it was given no iterator");
      batch = action();
      state = source_.state();
      static_cast<void>(to_bytes(message));  // finds tensors that cannot travel
    } catch (const std::exception& error) {
      message = {error.what(), {}, std::nullopt};
      if (problem.empty()) problem = "an exception without text";
    }
  }
  message = communicator_->bcast_obj(message, rank_master_);
  if (!problem.empty()) {
    throw InvalidArgument("create_multi_node_iterator: rank " + std::to_string(rank_master_) +
                          ": " + problem);
  }
  state_ = state;
  return std::move(batch);
}

std::optional<TensorList> MultiNodeIterator::next() {
  return on_master([this] { return source_.next(); });
}

void MultiNodeIterator::load_state(const SamplerState& state) {
  on_master([&]() -> std::optional<TensorList> {
    source_.load_state(state);
    return std::nullopt;
  });
}

}  // namespace chainmail
