// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Residual networks (He et al., 2016), for images of 32 x 32 pixels and for large ones.
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

/// The names that make_resnet() knows, for messages.
inline constexpr const char* kResnets = "resnet8, resnet18, resnet20 or resnet50";

/// Whether make_resnet() knows the name.
bool is_resnet(const std::string& name);

/// resnet8, resnet20: three stages of one block, or of three, 16 to 64 channels. resnet18: four
/// stages of two, 64 to 512. resnet50: bottlenecks, 3, 4, 6 and 3 of them, 256 to 2048.
/// `is_for_large`: images of about 224 x 224 pixels, which the first layers make four times
/// smaller. Throws chainmail::InvalidArgument for another name.
torch::nn::Sequential make_resnet(const std::string& name, std::int64_t classes,
                                  bool is_for_large = false);
