// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Residual networks (He et al., 2016) for images of 32 x 32 pixels.
//
// All layers stand in Sequentials, so that chainmail::create_mnbn_model can replace them.

#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

struct BlockShape {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t stride = 1;
  std::int64_t bottleneck = 0;  ///< channels of the narrow middle; 0: two 3 x 3 convolutions
};

/// relu(body(x) + shortcut(x)).
class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  explicit BlockImpl(const BlockShape& shape);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  BlockShape shape_;
  torch::nn::Sequential body_{nullptr};
  torch::nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(Block);

/// resnet20: three stages of three blocks, 16 to 64 channels. resnet50: bottlenecks, 3, 4, 6 and 3
/// of them, 256 to 2048 channels, with a first convolution that fits small images. Throws
/// chainmail::InvalidArgument for another name.
torch::nn::Sequential make_resnet(const std::string& name, std::int64_t classes);
