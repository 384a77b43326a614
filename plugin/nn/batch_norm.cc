// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// ATen's kernels for CUDA that torch's own SyncBatchNorm is made of do not exist on the CPU; those
// of batch_norm itself serve, with the statistics put in from outside.

#include <chainmail/nn/batch_norm.h>

#include <optional>
#include <tuple>
#include <vector>

#include <torch/torch.h>

#include "plugin/nn/channel_statistics.h"
#include "plugin/nn/graph_collectives.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

c10::ScalarType compute_type(c10::ScalarType input) {
  return input == c10::kDouble ? c10::kDouble : c10::kFloat;
}

at::Tensor to_tensor(const std::vector<double>& numbers, c10::ScalarType dtype) {
  return torch::tensor(numbers, torch::kDouble).to(dtype);
}

std::vector<double> to_numbers(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(torch::kDouble).contiguous();
  const auto* const begin = numbers.const_data_ptr<double>();
  return {begin, begin + numbers.numel()};
}

// Of one value per channel, for element-wise operations with `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

ChannelStatistics local_statistics(const at::Tensor& x) {
  const std::int64_t channels = x.size(1);
  if (x.numel() == 0) {
    const std::vector<double> zeros(static_cast<std::size_t>(channels));
    return {0, zeros, zeros};
  }
  // Two passes with sums in double; var_mean() takes several times longer.
  const auto [mean, variance] = at::batch_norm_update_stats(x, {}, {}, /*momentum=*/0);
  return {static_cast<double>(x.numel() / channels), to_numbers(mean), to_numbers(variance)};
}

ChannelStatistics global_statistics(Communicator& communicator, const at::Tensor& x) {
  const auto channels = static_cast<std::size_t>(x.size(1));
  const std::string what = "batch normalization of " + std::to_string(channels) + " channels";
  ChannelStatistics all =
      merge_records(gather_numbers(communicator, to_record(local_statistics(x)), what), channels);
  if (all.count < 2) {  // found by all ranks alike
    throw InvalidArgument(what +
                          ": training needs two values per channel or more, all ranks have " +
                          std::to_string(static_cast<int>(all.count)) + " together");
  }
  return all;
}

// (x - mean) / sqrt(variance + eps) * weight + bias, in one pass.
at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     const at::Tensor& mean, const at::Tensor& variance, double eps) {
  return std::get<0>(at::native_batch_norm(x, weight, bias, mean, variance, /*training=*/false,
                                           /*momentum=*/0, eps));
}

// With X = (x - mean) / sqrt(variance + eps), n values per channel and dy the gradient of the
// result, all sums over all ranks: dx = weight / sqrt(variance + eps) * (dy - sum(dy) / n -
// X * sum(dy * X) / n). Of weight and bias, each rank keeps its own sums.
struct Normalization : torch::autograd::Function<Normalization> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::shared_ptr<Communicator>& communicator, double eps,
                            ChannelStatistics* statistics) {
    const c10::ScalarType dtype = compute_type(input.scalar_type());
    const at::Tensor x = input.to(dtype);
    *statistics = global_statistics(*communicator, x);
    const at::Tensor mean = to_tensor(statistics->mean, dtype);
    const at::Tensor variance = to_tensor(statistics->variance, dtype);
    context->save_for_backward({input, weight, mean, variance});
    context->saved_data["eps"] = eps;
    context->saved_data["count"] = statistics->count;
    save_communicator(context, communicator);
    return x.numel() == 0 ? at::empty_like(input)
                          : normalize(x, weight.to(dtype), bias.to(dtype), mean, variance, eps)
                                .to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(
          "MultiNodeBatchNormalization has no second derivative: backward() without create_graph");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& mean = saved[2];
    const at::Tensor& variance = saved[3];
    const at::Tensor x = input.to(mean.scalar_type());
    const at::Tensor dy = gradients[0].to(mean.scalar_type()).contiguous(x.suggest_memory_format());
    const at::Tensor weight = saved[1].to(mean.scalar_type());
    const double eps = context->saved_data["eps"].toDouble();
    const at::Tensor scale = variance.add(eps).rsqrt_();

    at::Tensor sums = at::zeros({2, mean.numel()}, mean.options());  // of dy * X, of dy
    if (x.numel() != 0) {
      const auto [unused, d_weight, d_bias] = at::native_batch_norm_backward(
          dy, x, weight, mean, variance, mean, scale, /*train=*/false, eps, {false, true, true});
      sums = at::stack({d_weight, d_bias});
    }
    variable_list result(6);
    result[1] = sums[0].to(saved[1].scalar_type());
    result[2] = sums[1].to(saved[1].scalar_type());
    if (!context->needs_input_grad(0)) return result;
    const at::Tensor all = sum_in_graph(*saved_communicator(context), sums.to(torch::kDouble))
                               .div_(context->saved_data["count"].toDouble())
                               .to(mean.scalar_type());
    if (x.numel() == 0) {
      result[0] = at::zeros_like(input);
      return result;
    }
    const at::Tensor factor = weight * scale;
    at::Tensor dx = normalize(x, -factor * scale * all[0], -factor * all[1], mean,
                              at::ones_like(mean), /*eps=*/0);
    result[0] = dx.addcmul_(dy, per_channel(factor, dy)).to(input.scalar_type());
    return result;
  }
};

void check_input(const torch::nn::BatchNormOptions& options, std::size_t dimensions,
                 const at::Tensor& input) {
  const std::string name = "MultiNodeBatchNormalization" + std::to_string(dimensions) + "d";
  const std::string reason = why_not_dense_cpu(input);
  if (!reason.empty()) throw InvalidArgument(name + ": the input " + reason);
  const auto expected = static_cast<std::int64_t>(dimensions) + 2;
  const bool fits = input.dim() == expected || (dimensions == 1 && input.dim() == 2);
  if (!fits || input.size(1) != options.num_features()) {
    throw InvalidArgument(c10::str(name, " of ", options.num_features(), " channels got an input ",
                                   input.sizes(), "; it takes [N, ", options.num_features(),
                                   "] and ", dimensions, " more dimensions",
                                   dimensions == 1 ? " or none" : ""));
  }
  if (!input.is_floating_point() || input.element_size() < 2) {
    throw InvalidArgument(name + ": the input is of type " +
                          std::string(c10::toString(input.scalar_type())) +
                          "; use float16, bfloat16, float32 or float64");
  }
}

void update_running(const torch::nn::BatchNormOptions& options, const BatchNormTensors& tensors,
                    const ChannelStatistics& batch) {
  const at::NoGradGuard no_grad;
  tensors.num_batches_tracked.add_(1);
  // Without a momentum, the plain mean of all batches.
  const double share = options.momentum().has_value()
                           ? *options.momentum()
                           : 1.0 / tensors.num_batches_tracked.item<double>();
  const auto blend = [share](const at::Tensor& running, const std::vector<double>& now) {
    running.copy_(running.to(torch::kDouble).lerp_(to_tensor(now, torch::kDouble), share));
  };
  std::vector<double> unbiased = batch.variance;
  for (double& variance : unbiased) variance *= batch.count / (batch.count - 1);
  blend(tensors.running_mean, batch.mean);
  blend(tensors.running_var, unbiased);
}

at::Tensor normalize_locally(const torch::nn::BatchNormOptions& options,
                             const BatchNormTensors& tensors, const at::Tensor& input) {
  if (input.numel() == 0) return input.clone();
  // Statistics and parameters may be finer than the input, not the other way round.
  const c10::ScalarType dtype = compute_type(input.scalar_type());
  const auto cast = [dtype](const at::Tensor& t) { return t.defined() ? t.to(dtype) : t; };
  return at::batch_norm(input.to(dtype), cast(tensors.weight), cast(tensors.bias),
                        cast(tensors.running_mean), cast(tensors.running_var),
                        /*training=*/!options.track_running_stats(), /*momentum=*/0, options.eps(),
                        /*cudnn_enabled=*/false)
      .to(input.scalar_type());
}

}  // namespace

at::Tensor forward_batch_norm(const std::shared_ptr<Communicator>& communicator,
                              const torch::nn::BatchNormOptions& options,
                              const BatchNormTensors& tensors, bool is_training,
                              std::size_t dimensions, const at::Tensor& input) {
  check_input(options, dimensions, input);
  if (!is_training) return normalize_locally(options, tensors, input);
  // Autograd's functions take no undefined tensors.
  const auto channels = c10::TensorOptions(compute_type(input.scalar_type()));
  const at::Tensor weight =
      tensors.weight.defined() ? tensors.weight : at::ones({options.num_features()}, channels);
  const at::Tensor bias =
      tensors.bias.defined() ? tensors.bias : at::zeros({options.num_features()}, channels);
  ChannelStatistics statistics;
  const at::Tensor result =
      Normalization::apply(input, weight, bias, communicator, options.eps(), &statistics);
  if (options.track_running_stats()) update_running(options, tensors, statistics);
  return result;
}

void print_batch_norm(std::ostream& stream, const torch::nn::BatchNormOptions& options,
                      std::size_t dimensions, int ranks) {
  stream << std::boolalpha << "chainmail::MultiNodeBatchNormalization" << dimensions << "d("
         << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum().has_value()) {
    stream << *options.momentum();
  } else {
    stream << "none";
  }
  stream << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ", ranks=" << ranks << ")";
}

void check_batch_norm_communicator(const std::shared_ptr<Communicator>& communicator) {
  require_communicator(communicator, "MultiNodeBatchNormalization");
}

}  // namespace chainmail::internal
