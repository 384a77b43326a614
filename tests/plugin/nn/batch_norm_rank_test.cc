// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Batch normalization over P ranks does what torch's does in one process with the whole batch.

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "tests/plugin/nn/rank_communicator.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
using testing::comm;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kChannels = 6;

enum class Split { kEven, kUneven, kWithEmpty };

// How many samples each rank has.
Shape batch_sizes(Split split) {
  Shape sizes(static_cast<std::size_t>(comm()->size()), 8);
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (split == Split::kUneven) {
      sizes[r] = Shape{5, 1, 9, 2}.at(r);
    } else if (split == Split::kWithEmpty) {
      sizes[r] = Shape{7, 0, 3, 0}.at(r);
    }
  }
  return sizes;
}

struct Whole {
  torch::Tensor x;
  torch::Tensor weights;  ///< of each output in the loss
  std::int64_t begin = 0;
  std::int64_t own = 0;  ///< samples of this rank

  torch::Tensor own_part(const torch::Tensor& all) const { return all.narrow(0, begin, own); }
};

// The same on all ranks. Samples differ by where they stand, so that ranks have other statistics.
Whole make_whole(Split split, const Shape& inner, c10::ScalarType dtype, double center = 0) {
  const Shape sizes = batch_sizes(split);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  Shape shape{total, kChannels};
  shape.insert(shape.end(), inner.begin(), inner.end());
  torch::manual_seed(17);
  Shape along(shape.size(), 1);
  along[0] = total;
  Whole whole;
  whole.x = (torch::randn(shape, torch::kDouble) +
             torch::linspace(-1, 1, total, torch::kDouble).view(along) + center)
                .to(dtype);
  whole.weights = torch::randn(shape, torch::kDouble).to(dtype);
  const auto rank = static_cast<std::size_t>(comm()->rank());
  whole.begin = std::accumulate(sizes.begin(), sizes.begin() + comm()->rank(), std::int64_t{0});
  whole.own = sizes[rank];
  return whole;
}

struct Seen {
  torch::Tensor y;
  torch::Tensor dx;
};

template <typename Norm>
Seen run(Norm& norm, const torch::Tensor& input, const torch::Tensor& weights) {
  const torch::Tensor x = input.detach().clone().requires_grad_(true);
  const torch::Tensor y = norm->forward(x);
  (y * weights).sum().backward();
  return {y.detach(), x.grad()};
}

template <typename Norm>
void set_affine(Norm& norm) {
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::linspace(0.5, 2, kChannels));
  norm->bias.copy_(torch::linspace(-1, 1, kChannels));
}

struct Tolerance {
  double relative;
  double absolute;
};

Tolerance tolerance_of(c10::ScalarType dtype) {
  if (dtype == torch::kDouble) return {1e-9, 1e-10};
  if (dtype == torch::kHalf) return {1e-2, 1e-2};
  if (dtype == torch::kBFloat16) return {4e-2, 4e-2};
  return {1e-3, 1e-4};
}

void expect_close(const torch::Tensor& ours, const torch::Tensor& expected, Tolerance tolerance,
                  const char* what) {
  ASSERT_EQ(ours.sizes(), expected.sizes()) << what;
  const auto difference = (ours.to(torch::kDouble) - expected.to(torch::kDouble)).abs();
  EXPECT_TRUE(torch::allclose(ours.to(torch::kDouble), expected.to(torch::kDouble),
                              tolerance.relative, tolerance.absolute))
      << what << " differs by up to "
      << (difference.numel() == 0 ? 0.0 : difference.max().item<double>());
}

// Against torch's own in double, on the samples as they were rounded.
template <typename Ours, typename Torchs>
void compare(Split split, const Shape& inner, c10::ScalarType dtype, double center = 0) {
  const Whole whole = make_whole(split, inner, dtype, center);
  const Tolerance tolerance = tolerance_of(dtype);
  Ours ours(nn::BatchNormOptions(kChannels).eps(1e-4).momentum(0.3), comm());
  if (dtype == torch::kDouble) ours->to(dtype);
  Torchs torchs(nn::BatchNormOptions(kChannels).eps(1e-4).momentum(0.3));
  torchs->to(torch::kDouble);
  set_affine(ours);
  set_affine(torchs);

  const Seen alone = run(torchs, whole.x.to(torch::kDouble), whole.weights.to(torch::kDouble));
  const Seen here = run(ours, whole.own_part(whole.x), whole.own_part(whole.weights));
  EXPECT_EQ(here.y.scalar_type(), dtype);
  EXPECT_EQ(here.dx.scalar_type(), dtype);
  expect_close(here.y, whole.own_part(alone.y), tolerance, "y");
  expect_close(here.dx, whole.own_part(alone.dx), tolerance, "dx");
  // Sums over all samples, of which each rank has its share; in 16 bits the gradients are rounded.
  const double scale = dtype == torch::kDouble ? 1 : 20;
  const Tolerance of_sums{tolerance.relative, tolerance.absolute * scale};
  ASSERT_TRUE(ours->weight.grad().defined());
  expect_close(functions::allreduce(comm(), ours->weight.grad()), torchs->weight.grad(), of_sums,
               "d weight");
  expect_close(functions::allreduce(comm(), ours->bias.grad()), torchs->bias.grad(), of_sums,
               "d bias");
  const Tolerance of_statistics = dtype == torch::kDouble ? tolerance : Tolerance{1e-4, 1e-4};
  expect_close(ours->running_mean, torchs->running_mean, of_statistics, "running mean");
  expect_close(ours->running_var, torchs->running_var, of_statistics, "running variance");
  EXPECT_EQ(ours->num_batches_tracked.template item<std::int64_t>(), 1);
  verify_equal(*comm(), ours->buffers());
}

class BatchNorm : public ::testing::TestWithParam<Split> {};

TEST_P(BatchNorm, OfOneDimension) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    compare<MultiNodeBatchNormalization1d, nn::BatchNorm1d>(GetParam(), {}, dtype);
    compare<MultiNodeBatchNormalization1d, nn::BatchNorm1d>(GetParam(), {11}, dtype);
  }
}

TEST_P(BatchNorm, OfTwoAndThreeDimensions) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    compare<MultiNodeBatchNormalization2d, nn::BatchNorm2d>(GetParam(), {5, 7}, dtype);
    compare<MultiNodeBatchNormalization3d, nn::BatchNorm3d>(GetParam(), {3, 2, 4}, dtype);
  }
}

// E[x^2] - E[x]^2 in float32 has no digits left here: 1000^2 is 2^20, float32 has 24 bits.
TEST_P(BatchNorm, WithAMeanThatIsLargeAgainstTheSpread) {
  const Whole whole = make_whole(GetParam(), {5, 7}, torch::kFloat, 1000);
  MultiNodeBatchNormalization2d ours(kChannels, comm());
  nn::BatchNorm2d torchs(kChannels);
  torchs->to(torch::kDouble);
  const Seen alone = run(torchs, whole.x.to(torch::kDouble), whole.weights.to(torch::kDouble));
  const Seen here = run(ours, whole.own_part(whole.x), whole.own_part(whole.weights));
  // What float32 can: the samples themselves are known to 1000 * 2^-24 = 6e-5.
  expect_close(here.y, whole.own_part(alone.y), {1e-3, 5e-4}, "y");
  expect_close(here.dx, whole.own_part(alone.dx), {1e-3, 5e-4}, "dx");
  expect_close(ours->running_var, torchs->running_var, {1e-4, 1e-4}, "running variance");
}

INSTANTIATE_TEST_SUITE_P(Splits, BatchNorm,
                         ::testing::Values(Split::kEven, Split::kUneven, Split::kWithEmpty),
                         [](const auto& split) {
                           return split.param == Split::kEven     ? "Even"
                                  : split.param == Split::kUneven ? "Uneven"
                                                                  : "WithEmpty";
                         });

// Otherwise the tests above would show nothing.
TEST(BatchNormOverRanks, OrdinaryOnesDiffer) {
  if (comm()->size() == 1) {
    GTEST_SKIP() << "one rank has the whole batch";
  }
  const Whole whole = make_whole(Split::kEven, {5, 7}, torch::kFloat);
  nn::BatchNorm2d local(kChannels);
  nn::BatchNorm2d global(kChannels);
  const Seen alone = run(global, whole.x, whole.weights);
  const Seen here = run(local, whole.own_part(whole.x), whole.own_part(whole.weights));
  EXPECT_FALSE(torch::allclose(here.y, whole.own_part(alone.y), 1e-2, 1e-2));
  EXPECT_FALSE(torch::allclose(here.dx, whole.own_part(alone.dx), 1e-2, 1e-2));
}

TEST(BatchNormOverRanks, WithoutAffineOrStatistics) {
  const Whole whole = make_whole(Split::kUneven, {}, torch::kFloat);
  const auto options = nn::BatchNormOptions(kChannels).affine(false).track_running_stats(false);
  MultiNodeBatchNormalization1d ours(options, comm());
  nn::BatchNorm1d torchs(options);
  const Seen alone = run(torchs, whole.x, whole.weights);
  const Seen here = run(ours, whole.own_part(whole.x), whole.own_part(whole.weights));
  expect_close(here.y, whole.own_part(alone.y), {1e-3, 1e-4}, "y");
  expect_close(here.dx, whole.own_part(alone.dx), {1e-3, 1e-4}, "dx");
  EXPECT_TRUE(ours->parameters().empty());
}

TEST(BatchNormOverRanks, CumulativeStatistics) {
  const auto options = nn::BatchNormOptions(kChannels).momentum(std::nullopt);
  MultiNodeBatchNormalization1d ours(options, comm());
  nn::BatchNorm1d torchs(options);
  for (int step = 0; step < 3; ++step) {
    const Whole whole = make_whole(Split::kUneven, {}, torch::kFloat, step * step);
    (void)run(torchs, whole.x, whole.weights);
    (void)run(ours, whole.own_part(whole.x), whole.own_part(whole.weights));
  }
  expect_close(ours->running_mean, torchs->running_mean, {1e-4, 1e-5}, "running mean");
  expect_close(ours->running_var, torchs->running_var, {1e-4, 1e-5}, "running variance");
}

TEST(BatchNormOverRanks, ChannelsLast) {
  const Whole whole = make_whole(Split::kEven, {5, 7}, torch::kFloat);
  MultiNodeBatchNormalization2d ours(kChannels, comm());
  nn::BatchNorm2d torchs(kChannels);
  const Seen alone = run(torchs, whole.x, whole.weights);
  const Seen here = run(ours, whole.own_part(whole.x).contiguous(at::MemoryFormat::ChannelsLast),
                        whole.own_part(whole.weights));
  expect_close(here.y, whole.own_part(alone.y), {1e-3, 1e-4}, "y");
  expect_close(here.dx, whole.own_part(alone.dx), {1e-3, 1e-4}, "dx");
}

TEST(BatchNormOverRanks, EvaluationIsLocal) {
  MultiNodeBatchNormalization1d ours(kChannels, comm());
  (void)ours->forward(torch::randn({8, kChannels}));
  ours->eval();
  if (comm()->rank() == 0) {  // the others would not answer
    const auto x = torch::randn({3, kChannels}, torch::kHalf);
    nn::BatchNorm1d torchs(kChannels);
    torchs->running_mean.copy_(ours->running_mean);
    torchs->running_var.copy_(ours->running_var);
    torchs->eval();
    const auto y = ours->forward(x);
    EXPECT_EQ(y.scalar_type(), torch::kHalf);
    expect_close(y, torchs->forward(x.to(torch::kFloat)), {1e-2, 1e-2}, "y");
    EXPECT_EQ(ours->forward(torch::empty({0, kChannels})).numel(), 0);
    EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 1);
  }
  comm()->barrier();
}

TEST(BatchNormOverRanks, AnInputWithoutGradientExchangesNothingBackward) {
  MultiNodeBatchNormalization1d ours(kChannels, comm());
  const auto y = ours->forward(torch::randn({4, kChannels}));
  if (comm()->rank() == 0) {
    y.sum().backward();
    EXPECT_TRUE(ours->bias.grad().eq(4).all().item<bool>());
  }
  comm()->barrier();
}

TEST(BatchNormOverRanks, RefusesWhatItCannotDo) {
  MultiNodeBatchNormalization2d ours(kChannels, comm());
  EXPECT_THROW((void)ours->forward(torch::ones({2, kChannels})), InvalidArgument);
  EXPECT_THROW((void)ours->forward(torch::ones({2, kChannels + 1, 3, 3})), InvalidArgument);
  EXPECT_THROW((void)ours->forward(torch::ones({2, kChannels, 3, 3}, torch::kInt)),
               InvalidArgument);
  EXPECT_THROW(MultiNodeBatchNormalization2d(kChannels, nullptr), InvalidArgument);
  // One value per channel on rank 0, none elsewhere: all ranks find the same.
  const std::int64_t own = comm()->rank() == 0 ? 1 : 0;
  EXPECT_THROW((void)ours->forward(torch::ones({own, kChannels, 1, 1})), InvalidArgument);
  EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 0);

  const auto x = torch::randn({2, kChannels, 3, 3}, torch::requires_grad());
  const auto y = ours->forward(x).pow(2).sum();
  EXPECT_THROW((void)torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true),
               InvalidArgument);
}

TEST(BatchNormOverRanks, ACloneNormalizesOverTheSameRanks) {
  const Whole whole = make_whole(Split::kEven, {}, torch::kFloat);
  MultiNodeBatchNormalization1d ours(kChannels, comm());
  set_affine(ours);
  MultiNodeBatchNormalization1d copy(
      std::dynamic_pointer_cast<MultiNodeBatchNormalization1dImpl>(ours->clone()));
  EXPECT_FALSE(copy->weight.is_same(ours->weight));
  const Seen first = run(ours, whole.own_part(whole.x), whole.own_part(whole.weights));
  const Seen second = run(copy, whole.own_part(whole.x), whole.own_part(whole.weights));
  EXPECT_TRUE(torch::equal(first.y, second.y));
}

// Everything together: gradients in small overlapping buckets, several layers, several steps; the
// loss is that of the mean over all samples, with uneven and empty batches.
TEST(BatchNormOverRanks, TrainingEqualsOneProcess) {
  for (const Split split : {Split::kEven, Split::kUneven, Split::kWithEmpty}) {
    const Shape sizes = batch_sizes(split);
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const Whole whole = make_whole(split, {8, 8}, torch::kFloat);
    torch::manual_seed(5);
    nn::Sequential alone(nn::Conv2d(kChannels, 8, 3), nn::BatchNorm2d(8), nn::ReLU(),
                         nn::Conv2d(8, 8, 3), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(),
                         nn::Linear(8 * 16, 3));
    nn::Sequential together = create_mnbn_model(alone, comm());
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(together->parameters(),
                                            torch::optim::SGDOptions(0.1).momentum(0.9)),
        comm(),
        {.model = &together, .overlap = true, .bucket_bytes = 2000, .first_bucket_bytes = 100});
    torch::optim::SGD plain(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      plain.zero_grad();
      alone->forward(whole.x).pow(2).sum().div(total).backward();
      plain.step();
      optimizer->zero_grad();
      (together->forward(whole.own_part(whole.x)).pow(2).sum() * comm()->size() / total).backward();
      optimizer->step();
    }
    for (const auto& item : alone->named_parameters()) {
      expect_close(together->named_parameters()[item.key()], item.value(), {1e-3, 1e-4},
                   item.key().c_str());
    }
    for (const auto& item : alone->named_buffers()) {
      expect_close(together->named_buffers()[item.key()], item.value(), {1e-3, 1e-4},
                   item.key().c_str());
    }
    verify_equal(*comm(), together->parameters());
  }
}

}  // namespace
}  // namespace chainmail
