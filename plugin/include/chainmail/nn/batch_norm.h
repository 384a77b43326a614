// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Batch normalization over the samples of all ranks; ChainerMN's MultiNodeBatchNormalization.
//
// In training mode forward() and its backward are collective, one exchange each: every rank calls
// them in the same order, with a batch of its own that may have another size or be empty. The input
// needs gradients on all ranks or on none. In evaluation mode everything is local.
//
// The gradients of weight and bias are this rank's share, to be averaged with all others. When
// every rank's loss is the mean over its batch and all batches have one size, training is that of
// one process with the whole batch. With other sizes each rank counts alike, whatever its batch;
// for the mean over all samples let the loss be the sum over the batch times ranks / samples of all
// ranks, which is right for an empty batch, too.

#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/batchnorm.h>

#include <chainmail/communicator.h>
#include <chainmail/error.h>
#include <chainmail/export.h>

namespace chainmail {

namespace internal {

/// What a normalization holds; undefined where its options say so.
struct BatchNormTensors {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;
};

CHAINMAIL_API at::Tensor forward_batch_norm(const std::shared_ptr<Communicator>& communicator,
                                            const torch::nn::BatchNormOptions& options,
                                            const BatchNormTensors& tensors, bool is_training,
                                            std::size_t dimensions, const at::Tensor& input);
CHAINMAIL_API void print_batch_norm(std::ostream& stream,
                                    const torch::nn::BatchNormOptions& options,
                                    std::size_t dimensions, int ranks);
CHAINMAIL_API void check_batch_norm_communicator(const std::shared_ptr<Communicator>& communicator);
CHAINMAIL_API void replace_batch_norms(torch::nn::Module& model,
                                       const std::shared_ptr<Communicator>& communicator);

/// What the three have in common. Members, options, defaults and names in files are those of
/// torch::nn::BatchNorm; clone() keeps the communicator.
template <std::size_t kDimensions, typename Derived>
class MultiNodeBatchNormalizationBase
    : public torch::nn::NormImplBase<kDimensions, Derived, torch::nn::BatchNormOptions> {
 public:
  MultiNodeBatchNormalizationBase(const torch::nn::BatchNormOptions& how,
                                  std::shared_ptr<Communicator> communicator)
      : torch::nn::NormImplBase<kDimensions, Derived, torch::nn::BatchNormOptions>(how),
        communicator_(std::move(communicator)) {
    check_batch_norm_communicator(communicator_);
  }

  /// Normalizes each channel (dimension 1) of `input`, [N, C, ...] of float16, bfloat16, float32 or
  /// float64 on the CPU; the result has its shape and dtype. Statistics are taken in float32 or
  /// more, and merged over the ranks so that a large mean does no harm. The running variance is
  /// corrected by n / (n - 1) with the n of all ranks.
  /// @throws InvalidArgument  another shape or dtype; less than two values per channel on all ranks
  ///                          together. backward(): create_graph, which it cannot
  at::Tensor forward(const at::Tensor& input) {
    return forward_batch_norm(communicator_, this->options,
                              {this->weight, this->bias, this->running_mean, this->running_var,
                               this->num_batches_tracked},
                              this->is_training(), kDimensions, input);
  }

  void pretty_print(std::ostream& stream) const override {
    print_batch_norm(stream, this->options, kDimensions, communicator_->size());
  }

 protected:
  void _check_input_dim(const at::Tensor& /*input*/) override {}  // NOLINT: forward() checks more

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace internal

/// For [N, C] and [N, C, L].
class CHAINMAIL_API MultiNodeBatchNormalization1dImpl final
    : public internal::MultiNodeBatchNormalizationBase<1, MultiNodeBatchNormalization1dImpl> {
 public:
  using MultiNodeBatchNormalizationBase::MultiNodeBatchNormalizationBase;
};
/// `MultiNodeBatchNormalization1d norm(channels, communicator)`, or BatchNormOptions for channels.
TORCH_MODULE(MultiNodeBatchNormalization1d);

/// For [N, C, H, W].
class CHAINMAIL_API MultiNodeBatchNormalization2dImpl final
    : public internal::MultiNodeBatchNormalizationBase<2, MultiNodeBatchNormalization2dImpl> {
 public:
  using MultiNodeBatchNormalizationBase::MultiNodeBatchNormalizationBase;
};
TORCH_MODULE(MultiNodeBatchNormalization2d);

/// For [N, C, D, H, W].
class CHAINMAIL_API MultiNodeBatchNormalization3dImpl final
    : public internal::MultiNodeBatchNormalizationBase<3, MultiNodeBatchNormalization3dImpl> {
 public:
  using MultiNodeBatchNormalizationBase::MultiNodeBatchNormalizationBase;
};
TORCH_MODULE(MultiNodeBatchNormalization3d);

/// A deep copy of `model`, a module holder, in which every torch::nn::BatchNorm is a
/// MultiNodeBatchNormalization with its parameters, statistics and options. C++ can replace a layer
/// in Sequential, ModuleList and ModuleDict, at any depth; the forward() of other modules goes by
/// their members. As with clone(), names that were given to the layers of a Sequential become
/// numbers. Local.
/// @throws InvalidArgument  some BatchNorm is a member of another module; names its path
template <typename Holder>
[[nodiscard]] Holder create_mnbn_model(const Holder& model,
                                       const std::shared_ptr<Communicator>& communicator) {
  auto copy =
      std::dynamic_pointer_cast<typename Holder::ContainedType>(model.ptr()->clone(std::nullopt));
  // clone() makes every parameter trainable.
  const std::vector<at::Tensor> originals = model.ptr()->parameters();
  const std::vector<at::Tensor> copies = copy->parameters();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    copies[i].set_requires_grad(originals[i].requires_grad());
  }
  internal::replace_batch_norms(*copy, communicator);
  return Holder(std::move(copy));
}

}  // namespace chainmail
