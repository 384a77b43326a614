// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a sharded model of equal units takes: 16/W bytes for each of its parameters, with fp32 Adam,
// and 8 for those of two units, which are whole at a time, and their gradients.

#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <memory>
#include <string>

#include <torch/torch.h>

#include <chainmail/nn/sharded.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSide = 1024;
constexpr double kUnitElements = kSide * kSide;
constexpr int kUnits = 12;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsMemoryOurs = false;
#else
constexpr bool kIsMemoryOurs = true;
#endif

// Of /proc/self/status, in bytes.
double status_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ':')) return std::stod(line.substr(field.size() + 1)) * 1024;
  }
  throw std::runtime_error("no " + field);
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

nn::Sequential make_units(int count) {
  nn::Sequential model;
  for (int i = 0; i < count; ++i) {
    // One at a time: a whole model need not fit.
    model->push_back(Sharded<nn::Linear>(nn::Linear(nn::LinearOptions(kSide, kSide).bias(false)),
                                         testing::comm()));
  }
  return model;
}

void train_units(nn::Sequential model, int steps) {
  torch::optim::Adam optimizer(sharded_parameters(model), 1e-4);
  const torch::Tensor x = torch::ones({4, kSide});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model->forward(x).square().mean().backward();
    optimizer.step();
  }
}

TEST(ShardedMemory, ItsPeakIsThatOfTheSlicesAndTwoUnits) {
  if (!kIsMemoryOurs) GTEST_SKIP() << "a sanitizer takes memory of its own";
  // Otherwise the C library learns to take gradients from its heap, whose holes then count, too.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  train_units(make_units(3), 2);  // transports and kernels are there now
  testing::comm()->barrier();
  malloc_trim(0);
  const double before = status_of("VmRSS");
  forget_peak();
  nn::Sequential model = make_units(kUnits);
  train_units(model, 3);
  const double peak = status_of("VmHWM") - before;
  const double formula =
      16.0 * kUnits * kUnitElements / testing::comm()->size() + 8.0 * 2 * kUnitElements;
  RecordProperty("peak_bytes", std::to_string(peak));
  std::printf("rank %d of %d: peak %.1f MiB, formula %.1f MiB, ratio %.3f\n",
              testing::comm()->rank(), testing::comm()->size(), peak / (1 << 20),
              formula / (1 << 20), peak / formula);
  EXPECT_LE(peak, 1.05 * formula);
  // It is not by less than slices and state that this is so.
  EXPECT_GE(peak, 16.0 * kUnits * kUnitElements / testing::comm()->size());
  const auto unit = std::dynamic_pointer_cast<ShardedModule>(model->children().front());
  // Two units and the gradients on their way; backward's own are not among these.
  EXPECT_LE(static_cast<double>(unit->counts().peak_bytes), 3 * 4 * (kUnitElements + 1024));
  EXPECT_EQ(unit->counts().whole_bytes, 0U);
}

}  // namespace
}  // namespace chainmail
