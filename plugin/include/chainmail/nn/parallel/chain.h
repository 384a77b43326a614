// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The functions of <chainmail/nn/functions.h> in a fixed order, for models that span ranks.
//
// ChainerMN's send returns a delegate that must become part of the loss; where one is forgotten,
// backward waits for ever. A Chain keeps the delegates itself: each function takes the one before,
// so backward() runs all of them, in exact reverse order, on every rank. What did not deadlock
// forward cannot backward, however little of it a rank's loss is made of.
//
// Thread rule: one thread at a time, as for the communicator. Collective rule: at each function.

#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

namespace chainmail {

/// Functions of a communicator whose backward comes in reverse order. Arguments, results, errors
/// and gradients are those of the free functions of the same name (<chainmail/nn/functions.h>),
/// with these differences:
/// - Nothing has a delegate. The Chain takes
///   the one before, and keeps its own.
/// - The ranks of a collective agree on whether any of them needs a gradient.
///   If none does, backward does not communicate.
/// - No second derivatives.
///
/// Every rank ends its part with backward(), with its loss or without one; until then a Chain keeps
/// the graph alive. Under torch::NoGradGuard on all ranks nothing is kept. Functions of two Chains
/// of the same communicator have no order among each other: use one.
///
/// Whoever catches an exception inside of a Chain's scope may go on with it; one that leaves the
/// scope is told to the other ranks (~Chain).
///
/// Backward goes through a function once. Through a loss of its own, called on a tensor, it may
/// come before the Chain's, which then goes through the rest; with a gradient for a function that
/// it has been through it throws InvalidArgument, unless all ranks have called the first one with
/// retain_graph.
///
/// @code
/// chainmail::Chain chain(comm);
/// if (comm->rank() == 0) {
///   chain.send(front->forward(x), 1);
///   chain.backward();  // waits for the gradient of what was sent
/// } else {
///   chain.backward(torch::nll_loss(back->forward(chain.recv(0)), t));
/// }
/// @endcode
class CHAINMAIL_API Chain {
 public:
  /// Local; the first collective of a communicator in a graph is the one that connects its ranks.
  /// @throws InvalidArgument  without a communicator
  explicit Chain(std::shared_ptr<Communicator> communicator);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  /// During unwinding by an exception it ends the communicator of two or more ranks, as the
  /// communicator's own destructor does, so that none waits for what this rank will not send: they
  /// get a PeerError that names it. Not if all ranks throw what they have agreed on, as collectives
  /// do of one rank's mistake.
  ~Chain();

  /// Sends a copy of a tensor, or of a list, to `rank`, and does not wait.
  void send(at::ArrayRef<at::Tensor> x, int rank, int tag = 0);
  /// What `rank` sends: one tensor.
  [[nodiscard]] at::Tensor recv(int rank, int tag = 0);
  /// What `rank` sends.
  [[nodiscard]] std::vector<at::Tensor> recv_list(int rank, int tag = 0);
  /// root's on every rank.
  [[nodiscard]] at::Tensor bcast(const at::Tensor& x, int root = 0);
  /// All ranks' at root, nothing elsewhere.
  [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& x, int root = 0);
  /// This rank's of root's.
  [[nodiscard]] at::Tensor scatter(at::ArrayRef<at::Tensor> xs, int root = 0);
  /// From every rank what it has for this one.
  [[nodiscard]] std::vector<at::Tensor> alltoall(at::ArrayRef<at::Tensor> xs);
  /// All ranks' on every rank.
  [[nodiscard]] std::vector<at::Tensor> allgather(const at::Tensor& x);
  /// The sum on every rank.
  [[nodiscard]] at::Tensor allreduce(const at::Tensor& x);
  /// The sum of what all ranks have for this one.
  [[nodiscard]] at::Tensor reduce_scatter(at::ArrayRef<at::Tensor> xs);

  /// Backward through all functions since the last backward(), on a rank without a loss: gradients
  /// come from the ranks that have one. Collective over the ranks that were at these functions.
  /// Like torch's, it adds to the gradients of parameters and frees the graph. Does nothing where
  /// no function needs a gradient.
  /// @throws TimeoutError  a rank of a function does not call backward(); names it
  void backward();
  /// The same from `loss`, a scalar.
  /// @throws InvalidArgument  neither `loss` nor any function needs a gradient; `loss` is no
  ///                          scalar
  void backward(const at::Tensor& loss);

  /// `y` itself, in the same memory, whose backward comes before that of all functions so far:
  /// calling backward() on what is made of it does what this class's does. Local.
  [[nodiscard]] at::Tensor connect(const at::Tensor& y) const;
  /// A zero to call backward() on, which does the same on a rank without a loss. Local.
  [[nodiscard]] const at::Tensor& delegate() const noexcept { return token_; }
  /// Forgets all functions so far, of a forward whose backward will not come on any rank. Local.
  void reset();

  /// The communicator.
  const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }

 private:
  friend class Pipeline;  // which tells the others itself

  std::shared_ptr<Communicator> communicator_;
  at::Tensor token_;  // of the function before
  int exceptions_at_start_;
  bool tells_others_ = true;
};

}  // namespace chainmail
