// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/optimizer_state.h"

#include <sstream>

#include <torch/serialize/archive.h>

namespace chainmail::internal {

namespace {

c10::Device device_of(const torch::optim::Optimizer& optimizer) {
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.defined()) return parameter.device();
    }
  }
  return c10::kCPU;
}

}  // namespace

std::string save_optimizer(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void add_to_optimizer(const std::string& bytes, torch::optim::Optimizer& optimizer) {
  torch::serialize::InputArchive archive;
  // To where this rank's parameters are: the sender's GPU may be another.
  archive.load_from(bytes.data(), bytes.size(), device_of(optimizer));
  optimizer.load(archive);
}

void load_optimizer(const std::string& bytes, torch::optim::Optimizer& optimizer) {
  optimizer.state().clear();
  add_to_optimizer(bytes, optimizer);
}

}  // namespace chainmail::internal
