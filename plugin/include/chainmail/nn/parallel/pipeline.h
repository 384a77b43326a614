// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A model in stages, one per rank, through which a batch goes in pieces, so that all ranks compute
// at once.
//
// Collective: every rank calls step() and evaluate() in the same order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>
#include <chainmail/nn/parallel/chain.h>
#include <chainmail/nn/parallel/component.h>

namespace chainmail {

/// Options of a Pipeline, the same on all ranks.
struct PipelineOptions {
  int microbatches = 1;  ///< pieces of a batch; with P ranks, P - 1 of M + P - 1 turns are idle
};

/// Rank r is stage r. Each goes forward and backward by turns (1F1B; PipeDream, Narayanan et al.,
/// 2019, with one step of the optimizer per batch): stage r keeps the activations of at most P - r
/// microbatches, however many there are.
///
/// @code
/// chainmail::Pipeline pipeline(stage, comm, {.microbatches = 8});
/// optimizer.zero_grad();
/// torch::Tensor loss = pipeline.step(x, t, [](const auto& y, const auto& t) {
///   return torch::nll_loss(y, t);
/// });
/// optimizer.step();
/// @endcode
///
/// Without gradients a batch goes forward only: evaluate() brings the outputs, step() under
/// torch::NoGradGuard the loss. Whether modules are in training mode is the program's choice:
/// `stage->eval()`.
class CHAINMAIL_API Pipeline {
 public:
  /// The loss of a microbatch, a mean over its samples; called on the last rank.
  using Criterion = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

  /// `stage` is this rank's, a module holder or a shared pointer to a module, whose forward takes
  /// what the stage before brings: up to 8 tensors, or a list. Local.
  /// @throws InvalidArgument  no stage; no communicator; less than one microbatch
  template <typename M>
  Pipeline(M stage, std::shared_ptr<Communicator> communicator, const PipelineOptions& options)
      : Pipeline(internal::make_component(std::move(stage)), std::move(communicator), options) {}

  /// Forward and backward of a batch, which adds to the gradients of all stages' parameters. The
  /// gradients are those of the mean over the batch: a microbatch counts by its samples. Under
  /// torch::NoGradGuard on all ranks forward only, for the loss.
  ///
  /// What a rank throws, whether by itself, its stage or the criterion, ends the communicator of
  /// two or more ranks, so that none waits for it.
  ///
  /// @param input  the batch, [N, ...], on the first rank; ignored elsewhere
  /// @param target  of the batch, [N, ...], on the last rank; ignored elsewhere
  /// @param criterion  called on the last rank
  /// @returns the mean loss on the last rank, without a gradient; undefined elsewhere
  /// @throws InvalidArgument  on the rank that has them: fewer samples than microbatches, a last
  ///                          stage with several outputs, a loss that is no scalar
  /// @throws MismatchError  on all ranks, which can use the communicator no more: ranks cut the
  ///                        batch into other numbers of microbatches, or input and target have
  ///                        other numbers of samples (on one rank InvalidArgument), or some go
  ///                        forward only; names both
  /// @throws PeerError  another rank has thrown; names it and quotes its error
  at::Tensor step(const at::Tensor& input, const at::Tensor& target, const Criterion& criterion);

  /// Forward of a batch, without gradients on any rank. Stages compute at once as in step(), and
  /// none is further ahead of the next.
  ///
  /// @param input  the batch, [N, ...], on the first rank; ignored elsewhere
  /// @returns the last stage's outputs, [N, ...], on the last rank; undefined elsewhere
  /// @throws InvalidArgument  as step(); an output that is a scalar
  /// @throws MismatchError  as step(), which another rank may be at: it is the same without
  ///                        gradients
  /// @throws PeerError  as step()
  at::Tensor evaluate(const at::Tensor& input);

  /// The most microbatches whose activations this rank has had at once. Local.
  int most_in_flight() const noexcept { return most_in_flight_; }

 private:
  /// A microbatch between its forward and its backward.
  struct Flight {
    std::unique_ptr<Chain> chain;  ///< its own, so that its backward goes through nothing else
    at::Tensor loss;               ///< on the last rank
    bool has_backward = true;      ///< otherwise it only comes back
  };
  struct Batch {
    std::vector<at::Tensor> inputs;  ///< on the first rank
    std::int64_t samples = 0;        ///< on the last rank
    bool has_backward = true;
  };
  /// On the last rank: what backward of a microbatch begins with.
  using Finish = std::function<at::Tensor(std::size_t number, const at::Tensor& output)>;

  Pipeline(internal::Component stage, std::shared_ptr<Communicator> communicator,
           const PipelineOptions& options);
  bool is_first() const noexcept { return communicator_->rank() == 0; }
  bool is_last() const noexcept { return communicator_->rank() == communicator_->size() - 1; }
  std::vector<at::Tensor> cut(const at::Tensor& batch, const char* what) const;
  template <typename Run>
  at::Tensor or_tell_others(const Run& run);
  Batch begin(const at::Tensor& input) const;
  void go_through(const Batch& batch, const Finish& finish);
  void go_back();

  internal::Component stage_;
  std::shared_ptr<Communicator> communicator_;
  PipelineOptions options_;
  std::deque<Flight> flights_;
  int most_in_flight_ = 0;
};

}  // namespace chainmail
