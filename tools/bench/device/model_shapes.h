// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The parameters of well-known models, as shapes: what packing kernels meet in training.
//
// Pure functions.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace chainmail::bench {

using Shape = std::vector<std::int64_t>;

[[nodiscard]] std::int64_t element_count(const Shape& shape);

/// 161 tensors, 25,557,032 elements: He et al. 2015 as torchvision has it, in its order.
[[nodiscard]] std::vector<Shape> resnet50_shapes();

/// 391 tensors, 335,141,888 elements: Devlin et al. 2018, encoder and pooler, in the order of
/// Hugging Face's BertModel.
[[nodiscard]] std::vector<Shape> bert_large_shapes();

/// train_mnist's: 6 tensors, 1,796,010 elements.
[[nodiscard]] std::vector<Shape> mlp_shapes();

/// "resnet50", "bert_large", "mlp", or a size such as "256M": one tensor of so many bytes in
/// float32. Throws InvalidArgument.
[[nodiscard]] std::vector<Shape> parse_shapes(const std::string& name);

/// "resnet50,256M", each checked. Throws InvalidArgument.
[[nodiscard]] std::vector<std::string> parse_shape_names(const std::string& list);

}  // namespace chainmail::bench
