// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model whose parts are on several ranks, put together from modules; ChainerMN's
// MultiNodeChainList.
//
// Collective: every rank makes one with its own part, and calls forward() and backward() as often
// as all others.

#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>
#include <chainmail/nn/parallel/chain.h>
#include <chainmail/nn/parallel/component.h>

namespace chainmail {

/// The type of kInput and kOutput.
struct ModelEnd {};
/// As the ranks that a link gets its inputs from: the arguments of forward(). ChainerMN's None.
inline constexpr ModelEnd kInput{};
/// As the ranks that a link sends its outputs to: the result of forward(). ChainerMN's None.
inline constexpr ModelEnd kOutput{};

/// Where a link's tensors come from or go to: ranks, this rank itself among them, or an end of the
/// model. Converts from kInput, kOutput, a rank and a list of ranks.
class LinkRanks {
 public:
  /// The model's input or output.
  LinkRanks(ModelEnd /*end*/)
      : is_end_(true) {}  // NOLINT: all constructors convert, that is what the type is for
  /// One rank.
  LinkRanks(int rank) : ranks_(1, rank) {}  // NOLINT
  /// Several, in order; a rank may come more than once.
  LinkRanks(std::initializer_list<int> ranks) : ranks_(ranks) {}
  /// The same.
  LinkRanks(std::vector<int> ranks) : ranks_(std::move(ranks)) {}  // NOLINT

  /// True for kInput and kOutput.
  bool is_end() const noexcept { return is_end_; }
  /// None for an end.
  const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  bool is_end_ = false;
  std::vector<int> ranks_;
};

/// The links of one rank, called in the order in which they were added. A link that sends to a rank
/// needs one there that receives from this one, n-th to n-th; a link that sends to this rank itself
/// needs a later one that receives from it. A link gets all tensors of all its ranks, in order, as
/// arguments. Its outputs, a tensor, a tuple or a list, go to each of its ranks.
///
/// Parameters are those of this rank's links, by the number of the link: "0.weight".
///
/// @code
/// chainmail::MultiNodeChainList list(comm);
/// if (comm->rank() == 0) {
///   list->add_link(front, chainmail::kInput, 1).add_link(head, {1}, chainmail::kOutput);
///   list->backward(torch::nll_loss(list->forward(x), t));
/// } else {
///   list->add_link(middle, 0, 0);
///   (void)list->forward();
///   list->backward();
/// }
/// @endcode
class CHAINMAIL_API MultiNodeChainListImpl final : public torch::nn::Module {
 public:
  /// Local.
  /// @throws InvalidArgument  without a communicator
  explicit MultiNodeChainListImpl(std::shared_ptr<Communicator> communicator);

  /// Adds a module holder, or a shared pointer to a module, and returns this list. Its forward
  /// takes tensors (up to 8), or a list of them. Local.
  /// @throws InvalidArgument  no module; no such rank; no ranks; a second link to kOutput; after
  ///                          forward()
  template <typename M>
  MultiNodeChainListImpl& add_link(M module, LinkRanks from, LinkRanks to) {
    add_component(internal::make_component(std::move(module)), std::move(from), std::move(to));
    return *this;
  }

  /// Calls this rank's links. `inputs` are for links from kInput.
  /// @returns the tensor of the link to kOutput; on a rank without one a delegate, a zero that
  ///          needs a gradient. backward() of a loss that is made of either goes through the whole
  ///          model
  ///
  /// What a link throws on one rank ends the communicator of two or more ranks, so that none waits
  /// for it.
  /// @throws PeerError  another rank's link has thrown; names the rank and quotes the error
  /// @throws InvalidArgument  a link has another number of inputs; the link to kOutput has several
  ///                          outputs
  /// @throws MismatchError    on all ranks, in the first forward(), before anything is computed:
  ///                          what a rank sends to another is not received there, or the other
  ///                          way round, or ranks would wait for each other
  template <typename... T>
  [[nodiscard]] at::Tensor forward(const T&... inputs) {
    return only_output(forward_list({inputs...}));
  }
  /// The same for a link to kOutput with several outputs.
  [[nodiscard]] std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs);

  /// Chain::backward(): on a rank without a loss, or with one.
  void backward() { chain_.backward(); }
  /// The same with a loss.
  void backward(const at::Tensor& loss) { chain_.backward(loss); }
  /// What the links communicate through, for functions of the program's own.
  Chain& chain() noexcept { return chain_; }

 private:
  struct Link {
    internal::Component component;  ///< the module
    LinkRanks from;                 ///< where its arguments come from
    LinkRanks to;                   ///< where its outputs go
  };

  void add_component(internal::Component component, LinkRanks from, LinkRanks to);
  void check_ranks(const LinkRanks& ranks, const char* what) const;
  void check_edges();
  std::vector<at::Tensor> call_links(const std::vector<at::Tensor>& inputs);
  static at::Tensor only_output(const std::vector<at::Tensor>& outputs);

  Chain chain_;
  std::vector<Link> links_;
  bool is_checked_ = false;
};
/// `MultiNodeChainList list(communicator)`.
TORCH_MODULE(MultiNodeChainList);

}  // namespace chainmail
