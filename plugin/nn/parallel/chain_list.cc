// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/chain_list.h>

#include <deque>

#include <chainmail/error.h>

#include "plugin/nn/parallel/link_edges.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/family.h"

namespace chainmail {

namespace {

using Tensors = std::vector<at::Tensor>;

void append(Tensors& list, const Tensors& tensors) {
  list.insert(list.end(), tensors.begin(), tensors.end());
}

Tensors take_first(std::deque<Tensors>& queue) {
  Tensors first = std::move(queue.front());
  queue.pop_front();
  return first;
}

}  // namespace

MultiNodeChainListImpl::MultiNodeChainListImpl(std::shared_ptr<Communicator> communicator)
    : torch::nn::Module("chainmail::MultiNodeChainList"), chain_(std::move(communicator)) {}

void MultiNodeChainListImpl::check_ranks(const LinkRanks& ranks, const char* what) const {
  const std::string which =
      "MultiNodeChainList: link " + std::to_string(links_.size()) + ": " + what;
  if (!ranks.is_end() && ranks.ranks().empty()) {
    throw InvalidArgument(which + " an empty list of ranks; kInput and kOutput are the ends of " +
                          "the model");
  }
  for (const int rank : ranks.ranks()) {
    if (rank < 0 || rank >= chain_.communicator()->size()) {
      throw InvalidArgument(which + " rank " + std::to_string(rank) +
                            ", which is not a rank of this communicator of " +
                            std::to_string(chain_.communicator()->size()));
    }
  }
}

void MultiNodeChainListImpl::add_component(internal::Component component, LinkRanks from,
                                           LinkRanks to) {
  check_ranks(from, "from");
  check_ranks(to, "to");
  if (is_checked_) {
    throw InvalidArgument("MultiNodeChainList: links were added up to the first forward()");
  }
  if (to.is_end()) {
    for (const Link& link : links_) {
      if (!link.to.is_end()) continue;
      throw InvalidArgument("MultiNodeChainList: link " + std::to_string(links_.size()) +
                            " is the second to kOutput on rank " +
                            std::to_string(chain_.communicator()->rank()) +
                            "; a rank has one at most");
    }
  }
  register_module(std::to_string(links_.size()), component.module);
  links_.push_back({std::move(component), std::move(from), std::move(to)});
}

void MultiNodeChainListImpl::check_edges() {
  std::vector<internal::LinkEdges> own;
  for (const Link& link : links_) own.push_back({link.from.ranks(), link.to.ranks()});
  Communicator& communicator = *chain_.communicator();
  const std::string problem = internal::find_unmet_edge(communicator.allgather_obj(own));
  if (!problem.empty()) {
    internal::fail_on_all_ranks(communicator,
                                "MultiNodeChainList: the links do not fit together: " + problem);
  }
  is_checked_ = true;
}

Tensors MultiNodeChainListImpl::forward_list(const Tensors& inputs) {
  if (!is_checked_) check_edges();
  try {
    return call_links(inputs);
  } catch (...) {
    internal::tell_of_current_exception(*chain_.communicator(), "a link of a MultiNodeChainList");
    throw;
  }
}

Tensors MultiNodeChainListImpl::call_links(const Tensors& inputs) {
  const int own = chain_.communicator()->rank();
  std::deque<Tensors> queue;  // to this rank itself
  Tensors result;
  bool has_output = false;
  for (Link& link : links_) {
    Tensors arguments = link.from.is_end() ? inputs : Tensors();
    for (const int rank : link.from.ranks()) {
      append(arguments, rank == own ? take_first(queue) : chain_.recv_list(rank));
    }
    const Tensors outputs = link.component.forward(arguments);
    for (const int rank : link.to.ranks()) {
      if (rank == own) {
        queue.push_back(outputs);
      } else {
        chain_.send(outputs, rank);
      }
    }
    if (link.to.is_end()) {
      result = outputs;
      has_output = true;
    }
  }
  if (!has_output) return {chain_.delegate()};
  for (at::Tensor& tensor : result) tensor = chain_.connect(tensor);
  return result;
}

at::Tensor MultiNodeChainListImpl::only_output(const Tensors& outputs) {
  if (outputs.size() != 1) {
    throw InvalidArgument("MultiNodeChainList: the link to kOutput has " +
                          std::to_string(outputs.size()) + " outputs; call forward_list()");
  }
  return outputs.front();
}

namespace internal {

void refuse_inputs(const torch::nn::Module& module, std::size_t inputs) {
  throw InvalidArgument(module.name() + " has no forward that takes " + std::to_string(inputs) +
                        (inputs == 1 ? " tensor" : " tensors"));
}

}  // namespace internal
}  // namespace chainmail
