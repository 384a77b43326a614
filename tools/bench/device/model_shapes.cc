// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/device/model_shapes.h"

#include <cstddef>
#include <functional>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "tools/bench/command/sizes.h"

namespace chainmail::bench {
namespace {

// A convolution without bias and the batch normalization behind it.
void add_convolution(std::vector<Shape>& shapes, std::int64_t out, std::int64_t in,
                     std::int64_t kernel) {
  shapes.push_back({out, in, kernel, kernel});
  shapes.push_back({out});
  shapes.push_back({out});
}

void add_linear(std::vector<Shape>& shapes, std::int64_t out, std::int64_t in) {
  shapes.push_back({out, in});
  shapes.push_back({out});
}

void add_layer_norm(std::vector<Shape>& shapes, std::int64_t units) {
  shapes.push_back({units});
  shapes.push_back({units});
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<Shape> resnet50_shapes() {
  constexpr std::int64_t kExpansion = 4;
  constexpr std::int64_t kClasses = 1000;
  constexpr int kBlocks[] = {3, 4, 6, 3};
  std::vector<Shape> shapes;
  add_convolution(shapes, 64, 3, 7);
  std::int64_t in = 64;
  std::int64_t planes = 64;
  for (const int blocks : kBlocks) {
    for (int block = 0; block < blocks; ++block) {
      add_convolution(shapes, planes, in, 1);
      add_convolution(shapes, planes, planes, 3);
      add_convolution(shapes, kExpansion * planes, planes, 1);
      if (block == 0) add_convolution(shapes, kExpansion * planes, in, 1);  // beside the others
      in = kExpansion * planes;
    }
    planes *= 2;
  }
  add_linear(shapes, kClasses, in);
  return shapes;
}

std::vector<Shape> bert_large_shapes() {
  constexpr int kLayers = 24;
  constexpr std::int64_t kUnits = 1024;
  constexpr std::int64_t kInner = 4096;
  constexpr std::int64_t kWords = 30522;
  constexpr std::int64_t kPositions = 512;
  constexpr std::int64_t kSegments = 2;
  std::vector<Shape> shapes = {{kWords, kUnits}, {kPositions, kUnits}, {kSegments, kUnits}};
  add_layer_norm(shapes, kUnits);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int i = 0; i < 4; ++i) add_linear(shapes, kUnits, kUnits);  // query, key, value, output
    add_layer_norm(shapes, kUnits);
    add_linear(shapes, kInner, kUnits);
    add_linear(shapes, kUnits, kInner);
    add_layer_norm(shapes, kUnits);
  }
  add_linear(shapes, kUnits, kUnits);
  return shapes;
}

std::vector<Shape> mlp_shapes() {
  constexpr std::int64_t kUnits = 1000;
  std::vector<Shape> shapes;
  add_linear(shapes, kUnits, 28 * 28);
  add_linear(shapes, kUnits, kUnits);
  add_linear(shapes, 10, kUnits);
  return shapes;
}

std::vector<Shape> parse_shapes(const std::string& name) {
  if (name == "resnet50") return resnet50_shapes();
  if (name == "bert_large") return bert_large_shapes();
  if (name == "mlp") return mlp_shapes();
  try {
    const std::size_t elements = parse_bytes(name) / sizeof(float);
    if (elements > 0) return {{static_cast<std::int64_t>(elements)}};
  } catch (const InvalidArgument&) {
    // Told below, with the models' names.
  }
  throw InvalidArgument("no shapes \"" + name +
                        "\"; valid are resnet50, bert_large, mlp and sizes such as 256M");
}

std::vector<std::string> parse_shape_names(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');) {
    static_cast<void>(parse_shapes(name));
    names.push_back(name);
  }
  return names;
}

}  // namespace chainmail::bench
