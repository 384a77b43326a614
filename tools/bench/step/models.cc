// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/models.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <chainmail/error.h>

namespace chainmail::bench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void multiply(std::int64_t loops) {
  const at::NoGradGuard no_grad;
  static thread_local at::Tensor a = torch::ones({64, 64}) / 64;
  static thread_local at::Tensor product = torch::empty({64, 64});
  for (std::int64_t i = 0; i < loops; ++i) at::mm_out(product, a, a);
}

struct Paced : torch::autograd::Function<Paced> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const Pace& pace) {
    context->save_for_backward({weight});
    context->saved_data["loops"] = pace.loops;
    context->saved_data["sleep_us"] = pace.sleep_us;
    std::this_thread::sleep_for(std::chrono::microseconds(pace.forward_sleep_us));
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    multiply(context->saved_data["loops"].toInt());
    std::this_thread::sleep_for(std::chrono::microseconds(context->saved_data["sleep_us"].toInt()));
    return {gradients[0], torch::full_like(context->get_saved_variables()[0], 1e-3), at::Tensor()};
  }
};

struct PacedLayerImpl final : torch::nn::Module {
  explicit PacedLayerImpl(const Pace& pace) : pace_(pace) {
    weight_ = register_parameter(
        "weight", torch::zeros({kPacedBytes / static_cast<std::int64_t>(sizeof(float))}));
  }
  at::Tensor forward(const at::Tensor& x) { return Paced::apply(x, weight_, pace_); }

 private:
  Pace pace_;
  at::Tensor weight_;
};
TORCH_MODULE(PacedLayer);

// The layer behind takes no part in what is measured but keeps the loss a loss.
torch::nn::Sequential make_paced(const Pace& pace) {
  torch::nn::Sequential model(torch::nn::Linear(784, 10));
  for (int i = 0; i < kPacedLayers; ++i) model->push_back(PacedLayer(pace));
  return model;
}

}  // namespace

Pace pace_for(const std::string& name, double milliseconds, double forward_milliseconds) {
  using Clock = std::chrono::steady_clock;
  if (name == "device") {
    return {.sleep_us = std::llround(milliseconds * 1e3 / kPacedLayers),
            .forward_sleep_us = std::llround(forward_milliseconds * 1e3 / kPacedLayers)};
  }
  if (name != "paced") {
    return {};
  }
  constexpr std::int64_t kProbe = 2000;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    multiply(kProbe);
    const double spent = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    best = i == 0 ? spent : std::min(best, spent);
  }
  return {.loops = std::llround(milliseconds / best * kProbe / kPacedLayers)};
}

torch::nn::Sequential make_model(const std::string& name, const Pace& pace) {
  if (name == "paced" || name == "device") {
    torch::manual_seed(0);
    return make_paced(pace);
  }
  std::vector<std::int64_t> units;
  if (name == "mlp") {
    units = {784, 1024, 1024, 10};
  } else if (name == "layers") {
    units.assign(62, 128);
    units.front() = 784;
    units.push_back(10);
  } else if (name == "large") {
    units.assign(26, 1016);
    units.front() = 784;
    units.push_back(10);
  } else {
    throw InvalidArgument("--model " + name + ": use mlp, layers, large, paced or device");
  }
  torch::manual_seed(0);
  torch::nn::Sequential model;
  for (std::size_t i = 0; i + 1 < units.size(); ++i) {
    model->push_back(torch::nn::Linear(units[i], units[i + 1]));
    if (i + 2 < units.size()) model->push_back(torch::nn::ReLU());
  }
  return model;
}

}  // namespace chainmail::bench
