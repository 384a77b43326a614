// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <barrier>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <chainmail/error.h>
#include <chainmail/nn/parallel/pipeline.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

constexpr int kPipelineSteps = 3;

torch::nn::Sequential make_stage(int rank) {
  torch::nn::Sequential stage(torch::nn::Linear(4, 4), torch::nn::Tanh());
  fill(*stage, 0.1 * rank);
  return stage;
}

torch::Tensor batch_of(int step, std::int64_t samples) {
  return (torch::arange(samples * 4, torch::kFloat) * (step + 1)).sin().view({samples, 4});
}

torch::Tensor error_of(const torch::Tensor& y, const torch::Tensor& t) {
  return (y - t).pow(2).mean();
}

void check(const std::vector<int>& nodes, int microbatches, std::int64_t samples) {
  int ranks = 0;
  for (const int node : nodes) ranks += node;
  std::vector<torch::nn::Sequential> alone;
  std::vector<torch::Tensor> parameters;
  for (int rank = 0; rank < ranks; ++rank) {
    alone.push_back(make_stage(rank));
    for (const auto& parameter : alone.back()->parameters()) parameters.push_back(parameter);
  }
  torch::optim::SGD plain(parameters, 0.1);
  std::vector<double> losses;
  for (int step = 0; step < kPipelineSteps; ++step) {
    plain.zero_grad();
    torch::Tensor h = batch_of(step, samples);
    for (auto& stage : alone) h = stage->forward(h);
    const auto loss = error_of(h, batch_of(step + 1, samples));
    loss.backward();
    plain.step();
    losses.push_back(loss.item<double>());
  }

  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    const int rank = comm->rank();
    auto stage = make_stage(rank);
    torch::optim::SGD optimizer(stage->parameters(), 0.1);
    Pipeline pipeline(stage, comm, {.microbatches = microbatches});
    for (int step = 0; step < kPipelineSteps; ++step) {
      optimizer.zero_grad();
      const auto loss = pipeline.step(
          rank == 0 ? batch_of(step, samples) : torch::Tensor(),
          rank == ranks - 1 ? batch_of(step + 1, samples) : torch::Tensor(), error_of);
      optimizer.step();
      EXPECT_EQ(loss.defined(), rank == ranks - 1);
      if (loss.defined()) {
        EXPECT_FALSE(loss.requires_grad());
        EXPECT_NEAR(loss.item<double>(), losses[static_cast<std::size_t>(step)], 1e-6);
      }
    }
    EXPECT_EQ(pipeline.most_in_flight(), std::min(microbatches, ranks - rank));
    const auto& expected = alone[static_cast<std::size_t>(rank)];
    for (std::size_t p = 0; p < expected->parameters().size(); ++p) {
      EXPECT_TRUE(torch::allclose(stage->parameters()[p], expected->parameters()[p], 1e-5, 1e-6));
    }
  });
}

TEST(Pipeline, EqualsOneProcess) {
  check({1}, 3, 6);
  check({2}, 8, 16);
  check({2}, 1, 2);
  check({1, 1}, 5, 13);  // pieces that differ in size
  check({3}, 2, 4);      // fewer pieces than ranks
  check({2, 2}, 6, 12);
}

void check_evaluation(const std::vector<int>& nodes, int microbatches, std::int64_t samples) {
  int ranks = 0;
  for (const int node : nodes) ranks += node;
  const torch::Tensor x = batch_of(0, samples);
  const torch::Tensor t = batch_of(1, samples);
  torch::Tensor expected = x;
  for (int rank = 0; rank < ranks; ++rank) expected = make_stage(rank)->forward(expected);
  expected = expected.detach();

  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    const int rank = comm->rank();
    const bool is_last = rank == ranks - 1;
    auto stage = make_stage(rank);
    Pipeline pipeline(stage, comm, {.microbatches = microbatches});
    const torch::Tensor input = rank == 0 ? x : torch::Tensor();
    const torch::Tensor target = is_last ? t : torch::Tensor();
    const auto evaluate = [&] {
      const torch::Tensor y = pipeline.evaluate(input);
      const torch::NoGradGuard no_grad;
      const torch::Tensor loss = pipeline.step(input, target, error_of);
      ASSERT_EQ(y.defined(), is_last);
      ASSERT_EQ(loss.defined(), is_last);
      if (!is_last) return;
      EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-6));
      EXPECT_FALSE(y.requires_grad());
      EXPECT_NEAR(loss.item<double>(), error_of(expected, t).item<double>(), 1e-6);
    };
    evaluate();
    EXPECT_EQ(pipeline.most_in_flight(), 0);
    for (const auto& parameter : stage->parameters()) EXPECT_FALSE(parameter.grad().defined());
    pipeline.step(input, target, error_of);  // it trains as before
    for (const auto& parameter : stage->parameters()) EXPECT_TRUE(parameter.grad().defined());
    evaluate();
    const c10::InferenceMode inference;
    EXPECT_EQ(pipeline.evaluate(input).defined(), is_last);
  });
}

TEST(Pipeline, EvaluatesWithoutGradients) {
  check_evaluation({1}, 3, 6);
  check_evaluation({2}, 1, 2);
  check_evaluation({1, 1}, 5, 13);
  check_evaluation({3}, 2, 4);
  check_evaluation({2, 2}, 6, 12);
}

struct SumStageImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.sum(); }
};
TORCH_MODULE(SumStage);

TEST(Pipeline, RefusesWhatCannotBeCut) {
  EXPECT_THROW(Pipeline(make_stage(0), nullptr, {}), InvalidArgument);
  with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    EXPECT_THAT([&] { Pipeline(std::shared_ptr<torch::nn::LinearImpl>(), comm, {}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("needs a module")));
    EXPECT_THAT([&] { Pipeline(make_stage(0), comm, {.microbatches = 0}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("0 microbatches")));
    Pipeline pipeline(make_stage(0), comm, {.microbatches = 4});
    const auto batch = batch_of(0, 4);
    EXPECT_THAT([&] { (void)pipeline.step(batch_of(0, 3), batch, error_of); },
                ThrowsMessage<InvalidArgument>(HasSubstr("input has 3 samples for 4")));
    EXPECT_THAT([&] { (void)pipeline.step(batch, {}, error_of); },
                ThrowsMessage<InvalidArgument>(HasSubstr("target has no samples")));
    EXPECT_THAT(
        [&] {
          (void)pipeline.step(batch, batch,
                              [](const auto& y, const auto& /*t*/) { return y.sum(0); });
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("scalar")));
    EXPECT_THAT([&] { (void)pipeline.evaluate(batch_of(0, 3)); },
                ThrowsMessage<InvalidArgument>(HasSubstr("input has 3 samples for 4")));
    Pipeline without_samples(SumStage(), comm, {.microbatches = 4});
    EXPECT_THAT([&] { (void)without_samples.evaluate(batch); },
                ThrowsMessage<InvalidArgument>(HasSubstr("output is a scalar")));
  });
}

// Ranks that went on would take microbatches of one batch for those of the next.
TEST(Pipeline, FindsRanksThatCutABatchOtherwise) {
  const auto errors_of = [](const std::vector<int>& nodes, int odd_rank, std::int64_t samples) {
    return testing::errors_with_communicator(nodes, "hierarchical", [&](const CommPtr& comm) {
      const bool is_odd = comm->rank() == odd_rank;
      Pipeline pipeline(make_stage(comm->rank()), comm, {.microbatches = is_odd ? 2 : 4});
      const bool is_last = comm->rank() == comm->size() - 1;
      const torch::Tensor target = batch_of(0, is_last ? samples : 8);
      EXPECT_THROW((void)pipeline.step(batch_of(0, 8), target, error_of), MismatchError);
      comm->barrier();  // throws the same, for the text
    });
  };
  for (const std::string& error : errors_of({3}, 1, 8)) {
    EXPECT_THAT(error, HasSubstr("rank 0 is at a batch in 4 microbatches, rank 1 at one in 2"));
  }
  // Pieces that fit.
  for (const std::string& error : errors_of({1, 1}, 1, 4)) {
    EXPECT_THAT(error, HasSubstr("rank 0 is at a batch in 4 microbatches, rank 1 at one in 2"));
  }
  for (const std::string& error : errors_of({2}, -1, 4)) {
    EXPECT_THAT(error, HasSubstr("input on rank 0 has 8 samples, the target on rank 1 has 4"));
  }
}

// One that waits for gradients which nobody sends would wait for its time limit.
TEST(Pipeline, FindsRanksThatGoForwardOnly) {
  const auto expect_found = [](const std::vector<int>& nodes, int odd_rank, bool is_odd_forward,
                               const std::string& text) {
    with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
      Pipeline pipeline(make_stage(comm->rank()), comm, {.microbatches = 4});
      const torch::Tensor batch = batch_of(0, 8);
      const bool is_forward = (comm->rank() == odd_rank) == is_odd_forward;
      const torch::AutoGradMode mode(!is_forward);
      EXPECT_THAT([&] { (void)pipeline.step(batch, batch, error_of); },
                  ThrowsMessage<MismatchError>(HasSubstr(text)));
    });
  };
  expect_found({3}, 1, true,
               "rank 0 goes forward and backward through a batch, rank 1 forward only");
  expect_found({3}, 2, false, "rank 1 goes forward only through a batch, rank 2 forward and back");
  expect_found({1, 1}, 0, true,
               "rank 0 goes forward only through a batch, rank 1 forward and back");
}

// Passes its input on until a microbatch at which it breaks.
struct BreakingStageImpl : torch::nn::Module {
  BreakingStageImpl(int forwards, int backwards) : forwards_(forwards), backwards_(backwards) {}

  torch::Tensor forward(const torch::Tensor& x) {
    if (forwards_-- == 0) throw std::runtime_error("forward broke");
    const torch::Tensor y = x * weight_;
    if (!y.requires_grad()) return y;
    y.register_hook([this](const torch::Tensor& gradient) {
      if (backwards_-- == 0) throw std::runtime_error("backward broke");
      return gradient;
    });
    return y;
  }

 private:
  int forwards_, backwards_;
  torch::Tensor weight_ = register_parameter("weight", torch::ones({}));
};
TORCH_MODULE(BreakingStage);

// What happens on the rank that fails.
struct Break {
  int rank = 0;
  std::string what;
  int forwards = -1;   // before its stage throws; negative: never
  int backwards = -1;  // the same in backward
  std::int64_t samples = 8;
  Pipeline::Criterion criterion = error_of;
  bool has_backward = true;  // on all ranks
};

// Every rank catches its error and keeps the communicator, whose end would tell the others too.
void expect_all_learn(const std::vector<int>& nodes, const Break& broken) {
  SCOPED_TRACE(broken.what);
  int ranks = 0;
  for (const int node : nodes) ranks += node;
  std::barrier<> all(ranks);
  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    const bool breaks = comm->rank() == broken.rank;
    Pipeline pipeline(BreakingStage(breaks ? broken.forwards : -1, breaks ? broken.backwards : -1),
                      comm, {.microbatches = 4});
    const torch::Tensor batch = batch_of(0, breaks ? broken.samples : 8);
    const torch::AutoGradMode mode(broken.has_backward);
    std::string error;
    try {
      (void)pipeline.step(batch, batch, breaks ? broken.criterion : error_of);
    } catch (const PeerError& peer) {
      EXPECT_EQ(peer.peer_rank(), broken.rank);
      EXPECT_THAT(peer.what(), HasSubstr("rank " + std::to_string(broken.rank) + " on "));
      error = peer.what();
    } catch (const std::exception& own) {
      EXPECT_TRUE(breaks) << own.what();
      error = own.what();
    }
    EXPECT_THAT(error, HasSubstr(broken.what)) << "on rank " << comm->rank();
    all.arrive_and_wait();
    const torch::Tensor whole = batch_of(0, 8);
    EXPECT_THROW((void)pipeline.step(whole, whole, error_of), PeerError);
    all.arrive_and_wait();
  });
}

TEST(Pipeline, TellsAllRanksOfAnError) {
  const auto throws = [](const auto& /*y*/, const auto& /*t*/) -> torch::Tensor {
    throw std::runtime_error("criterion broke");
  };
  expect_all_learn({2, 1}, {.rank = 2, .what = "criterion broke", .criterion = throws});
  expect_all_learn({3}, {.rank = 1, .what = "forward broke", .forwards = 2});
  expect_all_learn({3}, {.rank = 1, .what = "backward broke", .backwards = 1});
  expect_all_learn({1, 1}, {.rank = 0, .what = "input has 3 samples for 4", .samples = 3});
  // Ranks before it have nothing to wait for but the news that it is done.
  expect_all_learn(
      {2, 1}, {.rank = 2, .what = "criterion broke", .criterion = throws, .has_backward = false});
  expect_all_learn({3}, {.rank = 1, .what = "forward broke", .forwards = 3, .has_backward = false});
}

}  // namespace
}  // namespace chainmail::testing
