// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Layers that are cut over the ranks: Megatron-LM's linear layers (Shoeybi et al., 2019) and
// ChainerMN's parallel convolution.
//
// For models of which every rank computes the whole, the same loss of the same samples, and has all
// other layers in full. Then each rank's gradients are those of that loss, and layers that all
// ranks have stay equal without being averaged. They must begin equal: construct them with the same
// seed on every rank, or set them to those of one; a broadcast of the whole model would give all
// ranks one rank's parts.
//
// Collective: constructors, forward, and backward wherever the input needs a gradient. Parameters
// begin as rank 0's numbers make those of the whole layer, and every rank draws as many numbers as
// for the whole layer, which exists until the constructor returns.

#pragma once

#include <memory>
#include <ostream>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

namespace chainmail {

/// Options of ColumnParallelLinear.
struct ColumnParallelOptions {
  bool gather_output =
      true;  ///< false: the result is this rank's features, as RowParallelLinear takes them
};

/// A linear layer of which each rank computes some of the output features: the first ranks one more
/// where they cannot be equal.
class CHAINMAIL_API ColumnParallelLinearImpl final : public torch::nn::Module {
 public:
  /// Collective. `options` are those of the whole layer.
  /// @throws InvalidArgument  on all ranks: fewer output features than ranks
  /// @throws MismatchError    on all ranks: ranks make other layers here, or have other options;
  ///                          names the option and both values
  ColumnParallelLinearImpl(const torch::nn::LinearOptions& options,
                           std::shared_ptr<Communicator> communicator,
                           const ColumnParallelOptions& how = {});

  /// `x` is [..., in], the same on all ranks; the result [..., out], or [..., this rank's part].
  /// Backward: the gradient of `x` is summed over the ranks.
  /// @throws InvalidArgument  another number of features, before anything is sent
  at::Tensor forward(const at::Tensor& x);
  /// Name, features and ranks.
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;  ///< this rank's part, [part of out, in]
  at::Tensor bias;    ///< this rank's part; undefined where the options say so

 private:
  torch::nn::LinearOptions options_;
  std::shared_ptr<Communicator> communicator_;
  ColumnParallelOptions how_;
};
/// `ColumnParallelLinear layer(torch::nn::LinearOptions(in, out), communicator)`.
TORCH_MODULE(ColumnParallelLinear);

/// Options of RowParallelLinear.
struct RowParallelOptions {
  bool is_input_parallel = false;  ///< true: the input is this rank's features, not all of them
};

/// A linear layer of which each rank takes some of the input features; what the ranks make of them
/// is added up. All have the bias.
class CHAINMAIL_API RowParallelLinearImpl final : public torch::nn::Module {
 public:
  /// Collective. `options` are those of the whole layer.
  /// @throws InvalidArgument  on all ranks: fewer input features than ranks
  /// @throws MismatchError    as ColumnParallelLinear
  RowParallelLinearImpl(const torch::nn::LinearOptions& options,
                        std::shared_ptr<Communicator> communicator,
                        const RowParallelOptions& how = {});

  /// `x` is [..., in], the same on all ranks, or [..., this rank's part]; the result is [..., out],
  /// the same bits on all. Backward does not communicate, except to join the gradient of a whole
  /// `x`.
  /// @throws InvalidArgument  another number of features, before anything is sent
  at::Tensor forward(const at::Tensor& x);
  /// Name, features and ranks.
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;  ///< this rank's part, [out, part of in]
  at::Tensor bias;    ///< all of it; undefined where the options say so

 private:
  torch::nn::LinearOptions options_;
  std::shared_ptr<Communicator> communicator_;
  RowParallelOptions how_;
};
/// `RowParallelLinear layer(torch::nn::LinearOptions(in, out), communicator)`.
TORCH_MODULE(RowParallelLinear);

/// How a convolution is cut.
enum class ConvSplit {
  kOutputs,  ///< each rank makes some output channels from all input channels: equals Conv2d
  kGrouped,  ///< ... from as many of the input channels: equals Conv2d with a group per rank
};

/// A convolution of which each rank computes some of the output channels, joined on all ranks. With
/// kGrouped ChainerMN's ParallelConvolution2D, but for the order of channels: rank r has the r-th
/// run of them, where that had every P-th.
class CHAINMAIL_API ParallelConv2dImpl final : public torch::nn::Module {
 public:
  /// Collective. `options` are those of the whole layer.
  /// @throws InvalidArgument  on all ranks: fewer output channels than ranks; with kGrouped, input
  ///                          or output channels that the ranks do not divide; groups of its own
  /// @throws MismatchError    as ColumnParallelLinear
  ParallelConv2dImpl(const torch::nn::Conv2dOptions& options,
                     std::shared_ptr<Communicator> communicator,
                     ConvSplit split = ConvSplit::kOutputs);

  /// `x` is [N, C, H, W] or [C, H, W], the same on all ranks, and so is the result.
  /// @throws InvalidArgument  another number of dimensions or channels, before anything is sent
  at::Tensor forward(const at::Tensor& x);
  /// Name, channels and ranks.
  void pretty_print(std::ostream& stream) const override;

  torch::nn::Conv2d conv{nullptr};  ///< this rank's part

 private:
  torch::nn::Conv2dOptions options_;
  std::shared_ptr<Communicator> communicator_;
  ConvSplit split_;
};
/// `ParallelConv2d layer(torch::nn::Conv2dOptions(in, out, 3), communicator)`.
TORCH_MODULE(ParallelConv2d);

}  // namespace chainmail
