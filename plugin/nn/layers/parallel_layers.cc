// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/layers.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <torch/torch.h>

#include <chainmail/error.h>

#include "plugin/nn/layers/layer_agreement.h"
#include "plugin/nn/layers/regions.h"

namespace chainmail {

namespace {

using internal::Cut;
using internal::LayerPlan;

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(ConvSplit split) {
  return split == ConvSplit::kGrouped ? "kGrouped" : "kOutputs";
}

LayerPlan plan_of(const char* kind, const torch::nn::LinearOptions& options) {
  return {kind,
          {{"in_features", std::to_string(options.in_features())},
           {"out_features", std::to_string(options.out_features())},
           {"bias", text_of(options.bias())}}};
}

LayerPlan plan_of(const ColumnParallelOptions& how, const torch::nn::LinearOptions& options) {
  LayerPlan plan = plan_of("ColumnParallelLinear", options);
  plan.options.push_back({"gather_output", text_of(how.gather_output)});
  return plan;
}

LayerPlan plan_of(const RowParallelOptions& how, const torch::nn::LinearOptions& options) {
  LayerPlan plan = plan_of("RowParallelLinear", options);
  plan.options.push_back({"is_input_parallel", text_of(how.is_input_parallel)});
  return plan;
}

LayerPlan plan_of(ConvSplit split, const torch::nn::Conv2dOptions& options) {
  const auto* const padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const bool is_same = std::holds_alternative<torch::enumtype::kSame>(options.padding());
  return {"ParallelConv2d",
          {{"split", text_of(split)},
           {"in_channels", std::to_string(options.in_channels())},
           {"out_channels", std::to_string(options.out_channels())},
           {"kernel_size", c10::str(options.kernel_size())},
           {"stride", c10::str(options.stride())},
           {"padding", padding != nullptr ? c10::str(*padding)
                       : is_same          ? "kSame"
                                          : "kValid"},
           {"dilation", c10::str(options.dilation())},
           {"groups", std::to_string(options.groups())},
           {"bias", text_of(options.bias())},
           {"padding_mode", torch::enumtype::get_enum_name(options.padding_mode())}}};
}

// On all ranks, which have compared their options.
void check_size(const Communicator& communicator, std::int64_t size, const char* layer,
                const char* what) {
  if (size < communicator.size()) {
    throw InvalidArgument(std::string(layer) + ": " + std::to_string(size) + " " + what + " for " +
                          std::to_string(communicator.size()) + " ranks; each needs one");
  }
}

// This rank's part of what rank 0 has along `dimension`.
at::Tensor scatter_whole(Communicator& communicator, const at::Tensor& whole,
                         std::int64_t dimension) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const Cut cut = internal::cut_of(whole.size(dimension), rank, communicator.size());
    parts.push_back(whole.detach().narrow(dimension, cut.begin, cut.length));
  }
  return communicator.scatter(parts);
}

// On all ranks, before one waits for another whose part has the wrong size.
void check_input(const at::Tensor& x, std::int64_t dimension, std::int64_t size, const char* layer,
                 const char* what) {
  if (x.defined() && dimension >= 0 && x.size(dimension) == size) return;
  throw InvalidArgument(std::string(layer) + ": the input " +
                        (x.defined() ? "is " + c10::str(x.sizes()) : "is undefined") + ", with " +
                        std::to_string(size) + " " + what + " wanted");
}

void require_divisible(std::int64_t channels, int ranks, const char* which) {
  if (channels % ranks != 0) {
    throw InvalidArgument("ParallelConv2d: " + std::to_string(channels) + " " + which +
                          " channels in groups of " + std::to_string(ranks) +
                          " ranks; use a multiple, or ConvSplit::kOutputs");
  }
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const torch::nn::LinearOptions& options,
                                                   std::shared_ptr<Communicator> communicator,
                                                   const ColumnParallelOptions& how)
    : torch::nn::Module("chainmail::ColumnParallelLinear"),
      options_(options),
      communicator_(std::move(communicator)),
      how_(how) {
  internal::require_same_layer(communicator_, plan_of(how_, options_));
  check_size(*communicator_, options_.out_features(), "ColumnParallelLinear", "output features");
  const torch::nn::Linear whole(options_);
  weight = register_parameter("weight", scatter_whole(*communicator_, whole->weight, 0));
  if (!options_.bias()) return;
  bias = register_parameter("bias", scatter_whole(*communicator_, whole->bias, 0));
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& x) {
  check_input(x, x.dim() - 1, options_.in_features(), "ColumnParallelLinear", "features");
  const at::Tensor part = at::linear(internal::enter_parts(communicator_, x), weight, bias);
  return how_.gather_output ? internal::join_parts(communicator_, part, part.dim() - 1) : part;
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "chainmail::ColumnParallelLinear(" << options_.in_features() << ", "
         << options_.out_features() << ", ranks=" << communicator_->size() << ")";
}

RowParallelLinearImpl::RowParallelLinearImpl(const torch::nn::LinearOptions& options,
                                             std::shared_ptr<Communicator> communicator,
                                             const RowParallelOptions& how)
    : torch::nn::Module("chainmail::RowParallelLinear"),
      options_(options),
      communicator_(std::move(communicator)),
      how_(how) {
  internal::require_same_layer(communicator_, plan_of(how_, options_));
  check_size(*communicator_, options_.in_features(), "RowParallelLinear", "input features");
  const torch::nn::Linear whole(options_);
  weight = register_parameter("weight", scatter_whole(*communicator_, whole->weight, 1));
  if (!options_.bias()) return;
  bias = register_parameter("bias", communicator_->bcast_tensor(whole->bias.detach()));
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& x) {
  check_input(x, x.dim() - 1, how_.is_input_parallel ? weight.size(1) : options_.in_features(),
              "RowParallelLinear", "features");
  const at::Tensor part =
      how_.is_input_parallel ? x : internal::take_part(communicator_, x, x.dim() - 1);
  const at::Tensor sum = internal::sum_parts(communicator_, at::linear(part, weight));
  return bias.defined() ? sum + bias : sum;
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "chainmail::RowParallelLinear(" << options_.in_features() << ", "
         << options_.out_features() << ", ranks=" << communicator_->size() << ")";
}

ParallelConv2dImpl::ParallelConv2dImpl(const torch::nn::Conv2dOptions& options,
                                       std::shared_ptr<Communicator> communicator, ConvSplit split)
    : torch::nn::Module("chainmail::ParallelConv2d"),
      options_(options),
      communicator_(std::move(communicator)),
      split_(split) {
  internal::require_same_layer(communicator_, plan_of(split_, options_));
  check_size(*communicator_, options_.out_channels(), "ParallelConv2d", "output channels");
  const int ranks = communicator_->size();
  if (options_.groups() != 1) {
    throw InvalidArgument("ParallelConv2d has no groups but the ranks; ConvSplit says how");
  }
  torch::nn::Conv2dOptions whole = options_;
  if (split_ == ConvSplit::kGrouped) {
    require_divisible(options_.in_channels(), ranks, "input");
    require_divisible(options_.out_channels(), ranks, "output");
    whole.groups(ranks);
  }
  // Made whole, then cut, as torch's own layer, which knows all ways to pad.
  conv = register_module("conv", torch::nn::Conv2d(whole));
  conv->weight.set_data(scatter_whole(*communicator_, conv->weight, 0));
  if (options_.bias()) conv->bias.set_data(scatter_whole(*communicator_, conv->bias, 0));
  conv->options.groups(1).out_channels(conv->weight.size(0)).in_channels(conv->weight.size(1));
}

at::Tensor ParallelConv2dImpl::forward(const at::Tensor& x) {
  const std::int64_t channels = x.dim() == 3 || x.dim() == 4 ? x.dim() - 3 : -1;
  check_input(x, channels, options_.in_channels(), "ParallelConv2d", "channels");
  const at::Tensor part = split_ == ConvSplit::kGrouped
                              ? internal::take_part(communicator_, x, channels)
                              : internal::enter_parts(communicator_, x);
  return internal::join_parts(communicator_, conv->forward(part), channels);
}

void ParallelConv2dImpl::pretty_print(std::ostream& stream) const {
  stream << "chainmail::ParallelConv2d(" << options_.in_channels() << ", "
         << options_.out_channels() << ", "
         << (split_ == ConvSplit::kGrouped ? "grouped" : "output")
         << ", ranks=" << communicator_->size() << ")";
}

}  // namespace chainmail
