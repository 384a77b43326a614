// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "resnet.h"

#include <vector>

#include <chainmail/error.h>

namespace nn = torch::nn;

namespace {

void add_convolution(nn::Sequential& layers, std::int64_t inputs, std::int64_t outputs,
                     std::int64_t kernel, std::int64_t stride) {
  nn::Conv2d convolution(
      nn::Conv2dOptions(inputs, outputs, kernel).stride(stride).padding(kernel / 2).bias(false));
  nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  layers->push_back(convolution);
  layers->push_back(nn::BatchNorm2d(outputs));
}

// One stage: the first block changes the channels, and from the second stage on the resolution.
struct Stage {
  std::int64_t blocks;
  std::int64_t outputs;
  std::int64_t bottleneck;
};

// Large images are made smaller before the first stage.
nn::Sequential make_network(std::int64_t first, bool is_for_large, const std::vector<Stage>& stages,
                            std::int64_t classes) {
  nn::Sequential network;
  add_convolution(network, 3, first, is_for_large ? 7 : 3, is_for_large ? 2 : 1);
  network->push_back(nn::ReLU());
  if (is_for_large) network->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t channels = first;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (std::int64_t b = 0; b < stages[s].blocks; ++b) {
      network->push_back(Block(
          BlockShape{channels, stages[s].outputs, s > 0 && b == 0 ? 2 : 1, stages[s].bottleneck}));
      channels = stages[s].outputs;
    }
  }
  network->push_back(nn::AdaptiveAvgPool2d(1));
  network->push_back(nn::Flatten());
  network->push_back(nn::Linear(channels, classes));
  return network;
}

}  // namespace

BlockImpl::BlockImpl(const BlockShape& shape) : shape_(shape) { BlockImpl::reset(); }

void BlockImpl::reset() {
  nn::Sequential body;
  if (shape_.bottleneck == 0) {
    add_convolution(body, shape_.inputs, shape_.outputs, 3, shape_.stride);
    body->push_back(nn::ReLU());
    add_convolution(body, shape_.outputs, shape_.outputs, 3, 1);
  } else {
    add_convolution(body, shape_.inputs, shape_.bottleneck, 1, 1);
    body->push_back(nn::ReLU());
    add_convolution(body, shape_.bottleneck, shape_.bottleneck, 3, shape_.stride);
    body->push_back(nn::ReLU());
    add_convolution(body, shape_.bottleneck, shape_.outputs, 1, 1);
  }
  body_ = register_module("body", body);
  nn::Sequential shortcut;
  if (shape_.inputs != shape_.outputs || shape_.stride != 1) {
    add_convolution(shortcut, shape_.inputs, shape_.outputs, 1, shape_.stride);
  }
  shortcut_ = register_module("shortcut", shortcut);
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  return torch::relu(body_->forward(x) + (shortcut_->is_empty() ? x : shortcut_->forward(x)));
}

bool is_resnet(const std::string& name) {
  return name == "resnet8" || name == "resnet18" || name == "resnet20" || name == "resnet50";
}

nn::Sequential make_resnet(const std::string& name, std::int64_t classes, bool is_for_large) {
  if (name == "resnet8") {
    return make_network(16, is_for_large, {{1, 16, 0}, {1, 32, 0}, {1, 64, 0}}, classes);
  }
  if (name == "resnet18") {
    return make_network(64, is_for_large, {{2, 64, 0}, {2, 128, 0}, {2, 256, 0}, {2, 512, 0}},
                        classes);
  }
  if (name == "resnet20") {
    return make_network(16, is_for_large, {{3, 16, 0}, {3, 32, 0}, {3, 64, 0}}, classes);
  }
  if (name == "resnet50") {
    return make_network(64, is_for_large,
                        {{3, 256, 64}, {4, 512, 128}, {6, 1024, 256}, {3, 2048, 512}}, classes);
  }
  throw chainmail::InvalidArgument("--model " + name + ": use " + kResnets);
}
