// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/device/model_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace chainmail::bench {
namespace {

std::int64_t total(const std::vector<Shape>& shapes) {
  std::int64_t count = 0;
  for (const Shape& shape : shapes) count += element_count(shape);
  return count;
}

TEST(ModelShapes, ResNet50) {
  const std::vector<Shape> shapes = resnet50_shapes();
  EXPECT_EQ(shapes.size(), 161U);
  EXPECT_EQ(total(shapes), 25'557'032);
  EXPECT_EQ(
      std::count_if(shapes.begin(), shapes.end(), [](const Shape& s) { return s.size() == 4; }), 53)
      << "convolutions";
  EXPECT_EQ(shapes.front(), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shapes[12], (Shape{256, 64, 1, 1})) << "beside the first block";
  EXPECT_EQ(shapes[shapes.size() - 2], (Shape{1000, 2048}));
}

TEST(ModelShapes, BertLarge) {
  const std::vector<Shape> shapes = bert_large_shapes();
  EXPECT_EQ(shapes.size(), 391U);
  EXPECT_EQ(total(shapes), 335'141'888);
  EXPECT_EQ(shapes.front(), (Shape{30522, 1024}));
}

TEST(ModelShapes, Mlp) {
  EXPECT_EQ(mlp_shapes().size(), 6U);
  EXPECT_EQ(total(mlp_shapes()), 1'796'010);
}

TEST(ModelShapes, OfNames) {
  EXPECT_EQ(parse_shapes("resnet50"), resnet50_shapes());
  EXPECT_EQ(parse_shapes("bert_large"), bert_large_shapes());
  EXPECT_EQ(parse_shapes("256M"), (std::vector<Shape>{{64 << 20}}));
  EXPECT_EQ(parse_shape_names("resnet50,1M"), (std::vector<std::string>{"resnet50", "1M"}));
  EXPECT_TRUE(parse_shape_names("").empty());
  for (const char* name : {"resnet", "", "3", "1X", "-4K"}) {
    EXPECT_THROW(static_cast<void>(parse_shapes(name)), InvalidArgument) << name;
  }
}

}  // namespace
}  // namespace chainmail::bench
