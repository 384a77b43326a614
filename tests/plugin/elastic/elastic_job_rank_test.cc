// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs of shards: who gets which samples, what counts when, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>
#include <chainmail/elastic.h>

namespace chainmail {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint32_t kShards = 8;

// x -> w * x on one number, by SGD with a rate of 1: what the gradients were can be read off.
struct Job {
  explicit Job(std::size_t size = 24, std::int64_t batch = 16, bool shuffle = false)
      : job(create_elastic_job({.shards = kShards, .seed = 5})),
        model(nn::LinearOptions(1, 1).bias(false)),
        samples(size, {.batch = batch, .shuffle = shuffle, .seed = 3}) {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(0);
    optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(1)),
        job->communicator(), {.model = &model});
  }

  // The gradient is the mean of the samples' numbers.
  torch::Tensor loss(const std::vector<std::size_t>& indices) {
    const std::vector<double> numbers(indices.begin(), indices.end());
    return model->forward(torch::tensor(numbers, torch::kFloat).view({-1, 1})).mean();
  }
  bool train(Step& step) {
    for (Shard& shard : step.shards(samples)) shard.backward(loss(shard.indices()));
    step.commit(*optimizer);
    return false;
  }
  float weight() const { return model->weight.item<float>(); }

  std::unique_ptr<ElasticJob> job;
  nn::Linear model;
  ShardSampler samples;
  std::unique_ptr<MultiNodeOptimizer> optimizer;
};

void make_job(const ElasticJobOptions& options = {}) {
  static_cast<void>(create_elastic_job(options));
}

ElasticJobState state_at(std::int64_t next_step, std::uint32_t shards = kShards) {
  ElasticJobState state;
  state.next_step = next_step;
  state.shards = shards;
  return state;
}

TEST(ElasticJob, GivesEverySampleToOneShard) {
  for (const bool shuffle : {false, true}) {
    Job job(50, 16, shuffle);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::size_t> all;
      for (std::size_t k = 0; k < job.samples.steps_per_epoch(); ++k) {
        job.job->run([&](Step& step) {
          std::vector<std::size_t> own;
          for (Shard& shard : step.shards(job.samples)) {
            EXPECT_EQ(step.epoch(), epoch);
            own.insert(own.end(), shard.indices().begin(), shard.indices().end());
            shard.backward(job.loss(shard.indices()));
          }
          step.commit(*job.optimizer);
          EXPECT_EQ(step.ends_epoch(), k == 3);
          for (const auto& of_rank : job.job->communicator()->allgather_obj(own)) {
            all.insert(all.end(), of_rank.begin(), of_rank.end());
          }
          return false;
        });
      }
      std::vector<std::size_t> expected(50);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all == expected, !shuffle);
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, expected);
    }
  }
}

TEST(ElasticJob, StepsByTheMeanOverTheSamples) {
  Job job;
  job.job->run([&](Step& step) { return job.train(step); });
  EXPECT_EQ(job.weight(), -7.5F);  // of 0 to 15
  job.job->run([&](Step& step) { return job.train(step); });
  EXPECT_EQ(job.weight(), -27.0F);  // of 16 to 23: some shards have one sample, some have none
  EXPECT_EQ(job.samples.state().epoch, 1);
}

TEST(ElasticJob, GivesEachRankItsBatchAndMovesTheScaleThere) {
  Job job;
  const int ranks = job.job->communicator()->size();
  // The steps before were those of twice as many.
  ShardSampler samples(1000, {.batch = 12, .policy = BatchPolicy::kPerRank, .ramp_steps = 4});
  samples.load_state({.first_ranks = 2 * ranks, .ranks = 2 * ranks, .ramp_done = 4});
  std::vector<double> scales;
  bool fails = false;
  const auto train = [&](Step& step) {
    std::int64_t own = 0;
    for (Shard& shard : step.shards(samples)) {
      own += static_cast<std::int64_t>(shard.indices().size());
      if (std::exchange(fails, false)) throw std::runtime_error("once");
      shard.backward(job.loss(shard.indices()));
    }
    scales.push_back(samples.batch_scale());
    step.commit(*job.optimizer);
    EXPECT_EQ(samples.batch_scale(), scales.back()) << "of the step that was committed last";
    std::int64_t all = 0;
    for (const std::int64_t of_rank : job.job->communicator()->allgather_obj(own)) all += of_rank;
    EXPECT_EQ(all, 12 * ranks);
    return false;
  };
  for (int step = 0; step < 2; ++step) job.job->run(train);
  fails = true;
  EXPECT_THROW(job.job->run(train), std::runtime_error);
  for (int step = 0; step < 4; ++step) job.job->run(train);
  EXPECT_EQ(scales, (std::vector<double>{0.875, 0.75, 0.625, 0.5, 0.5, 0.5}));
  EXPECT_EQ(samples.state(), (ShardSamplerState{.position = std::int64_t{72} * ranks,
                                                .first_ranks = std::int64_t{2} * ranks,
                                                .ranks = ranks,
                                                .ramp_done = 4}));
}

TEST(ElasticJob, CountsNothingOfAStepThatThrew) {
  Job job;
  nn::BatchNorm1d norm(1);
  job.job->add("norm", &norm);
  int calls = 0;
  const auto step_that_fails_once = [&](Step& step) {
    EXPECT_EQ(step.number(), 1);
    for (Shard& shard : step.shards(job.samples)) {
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
      norm->forward(torch::ones({4, 1}) * static_cast<double>(shard.number() + 1));
      // On every rank: with one of them in the exchange the others would wait for it.
      if (calls++ == 0) throw std::runtime_error("once");
      shard.backward(job.loss(shard.indices()));
      shard.report("loss", 1, 2);
    }
    step.commit(*job.optimizer);
    return false;
  };
  EXPECT_THROW(job.job->run(step_that_fails_once), std::runtime_error);
  EXPECT_EQ(job.weight(), 0);
  EXPECT_EQ(job.samples.state().position, 0);
  EXPECT_EQ(job.job->state().next_step, 1);
  job.job->run(step_that_fails_once);
  EXPECT_EQ(job.weight(), -7.5F);
  EXPECT_EQ(job.job->state().next_step, 2);
  EXPECT_EQ(job.job->state().metrics.entries().at("loss").count, std::int64_t{2} * kShards);
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_NEAR(norm->running_mean.item<float>(), 0.45F, 1e-6F);  // a tenth of the mean of 1 to 8
}

TEST(ElasticJob, TakesTheBuffersThatACheckpointHasPutBack) {
  Job job;
  nn::BatchNorm1d norm(1);
  job.job->add("norm", &norm);
  const torch::NoGradGuard no_grad;
  norm->running_mean.fill_(2);
  job.job->run([&](Step& step) {
    const torch::AutoGradMode grad(true);
    for (Shard& shard : step.shards(job.samples)) {
      EXPECT_EQ(norm->running_mean.item<float>(), 2);
      shard.backward(job.loss(shard.indices()));
    }
    step.commit(*job.optimizer);
    return false;
  });
  EXPECT_EQ(norm->running_mean.item<float>(), 2);
}

TEST(ElasticJob, EachShardHasRandomNumbersOfItsOwn) {
  Job job;
  std::vector<double> first;
  for (int step_number = 0; step_number < 2; ++step_number) {
    std::vector<double> own;
    job.job->run([&](Step& step) {
      for (Shard& shard : step.shards(job.samples)) {
        own.push_back(torch::rand({}, torch::kDouble).item<double>());
        shard.backward(job.loss(shard.indices()));
      }
      step.commit(*job.optimizer);
      return false;
    });
    std::vector<double> all;
    for (const auto& of_rank : job.job->communicator()->allgather_obj(own)) {
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    all.insert(all.end(), first.begin(), first.end());
    first = all;
  }
  std::sort(first.begin(), first.end());
  EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
}

TEST(ElasticJob, EvaluatesEachSampleOnce) {
  Job job;
  for (const std::size_t size : {std::size_t{3}, std::size_t{100}}) {
    std::int64_t own = 0;
    const Metrics metrics = job.job->evaluate(size, [&](const std::vector<std::size_t>& indices) {
      Metrics of_shard;
      for (const std::size_t index : indices) of_shard.add("index", static_cast<double>(index));
      own += static_cast<std::int64_t>(indices.size());
      return of_shard;
    });
    EXPECT_EQ(metrics.entries().at("index").count, static_cast<std::int64_t>(size));
    EXPECT_EQ(metrics.means().at("index"), static_cast<double>(size - 1) / 2);
  }
  const int last = job.job->communicator()->size() - 1;
  EXPECT_THAT(
      [&] {
        static_cast<void>(job.job->evaluate(8, [&](const std::vector<std::size_t>& /*indices*/) {
          if (job.job->communicator()->rank() == last) throw std::runtime_error("no file");
          return Metrics();
        }));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("no file")));
}

// All are refused before anything is exchanged, on every rank, and the step can be run again.
TEST(ElasticJob, RefusesWhatWouldCountOtherwise) {
  Job job;
  const auto refusal = [&](const std::function<void(Step&)>& body) {
    std::string text = "nothing";
    try {
      job.job->run([&](Step& step) {
        body(step);
        return true;
      });
    } catch (const InvalidArgument& error) {
      text = error.what();
    }
    return text;
  };
  EXPECT_THAT(refusal([](Step& /*step*/) {}), HasSubstr("without a commit()"));
  EXPECT_THAT(refusal([&](Step& step) {
                for (Shard& shard : step.shards(job.samples)) shard.report("a\nb", 1, 1);
              }),
              HasSubstr("line break"));
  EXPECT_THAT(refusal([&](Step& step) { step.commit(*job.optimizer); }),
              HasSubstr("a commit() without shards()"));
  EXPECT_THAT(refusal([&](Step& step) {
                step.shards(job.samples);
                step.commit(*job.optimizer);
              }),
              HasSubstr("before shard"));
  EXPECT_THAT(refusal([&](Step& step) {
                for (Shard& shard : step.shards(job.samples)) static_cast<void>(shard);
              }),
              HasSubstr("has had no backward()"));
  EXPECT_THAT(refusal([&](Step& step) {
                step.shards(job.samples);
                step.shards(job.samples);
              }),
              HasSubstr("a second shards()"));
  EXPECT_THAT(refusal([&](Step& step) { static_cast<void>(step.epoch()); }),
              HasSubstr("once shards() has named its sampler"));
  EXPECT_THAT(refusal([&](Step& step) { static_cast<void>(step.ends_epoch()); }),
              HasSubstr("known after its commit()"));
  EXPECT_THAT(refusal([&](Step& /*step*/) { job.loss({1}).backward(); }),
              HasSubstr("Shard::backward()"));
  EXPECT_THAT(refusal([&](Step& step) {
                for (Shard& shard : step.shards(job.samples)) shard.report("x", 1, -1);
              }),
              HasSubstr("negative count"));
  EXPECT_EQ(job.weight(), 0);
  // One that asks for nothing and ends the job has nothing to commit.
  job.job->run([](Step& /*step*/) { return false; });
  EXPECT_EQ(job.job->state().next_step, 1);
  job.job->run([&](Step& step) { return job.train(step); });
  EXPECT_EQ(job.weight(), -7.5F);
}

// What a backward has left where it must not counts for nothing.
TEST(ElasticJob, DropsStrayGradients) {
  Job job;
  EXPECT_THROW(job.loss({5}).backward(), InvalidArgument);
  job.job->run([&](Step& step) { return job.train(step); });
  EXPECT_EQ(job.weight(), -7.5F);
}

TEST(ElasticJob, RefusesCallsByHandWithinAStep) {
  Job job;
  const auto refusal = [&](const std::function<void()>& call) {
    try {
      job.job->run([&](Step& step) {
        for (Shard& shard : step.shards(job.samples)) {
          call();
          shard.backward(job.loss(shard.indices()));
        }
        step.commit(*job.optimizer);
        return false;
      });
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(refusal([&] { job.optimizer->step(); }), HasSubstr("step() by hand"));
  EXPECT_THAT(refusal([&] { job.optimizer->zero_grad(); }), HasSubstr("zero_grad() by hand"));
  EXPECT_THAT(refusal([&] { job.optimizer->allreduce_grad(); }), HasSubstr("by hand"));
  EXPECT_THAT(refusal([&] { job.job->run([](Step& /*step*/) { return false; }); }),
              HasSubstr("run() within run()"));
  EXPECT_THAT(refusal([&] { job.job->load_state(job.job->state()); }), HasSubstr("within run()"));
  EXPECT_THAT(
      refusal([&] {
        static_cast<void>(job.job->evaluate(8, [](const auto& /*i*/) { return Metrics(); }));
      }),
      HasSubstr("between the shards"));
  EXPECT_THAT(refusal([&] { job.job->add("other", nn::BatchNorm1d(1)); }),
              HasSubstr("within run()"));
  EXPECT_EQ(job.weight(), 0);
  job.optimizer->zero_grad();
  job.job->run([&](Step& step) { return job.train(step); });
  EXPECT_EQ(job.weight(), -7.5F);
}

TEST(ElasticJob, TakesOneOptimizerOfItsOwn) {
  Job job;
  const auto other_job = create_elastic_job({.shards = kShards});
  nn::Linear model(1, 1);
  const auto make = [&](const std::shared_ptr<Communicator>& communicator) {
    return create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(model->parameters(), 0.1), communicator,
        {.model = &model});
  };
  const auto foreign = make(other_job->communicator());
  EXPECT_THAT(
      [&] {
        job.job->run([&](Step& step) {
          for (Shard& shard : step.shards(job.samples)) shard.backward(job.loss(shard.indices()));
          step.commit(*foreign);
          return false;
        });
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("another communicator")));
  const auto second = make(job.job->communicator());
  EXPECT_THAT([&] { job.job->run([&](Step& step) { return job.train(step); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this one has 2")));
  EXPECT_THAT([&] { DistributedModel(model, job.job->communicator()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("DistributedModel")));
}

// Everything that a shard does not reach counts as zero, wherever the shard is.
TEST(ElasticJob, TakesShardsWhoseLossReachesNothing) {
  Job job;
  job.job->run([&](Step& step) {
    for (Shard& shard : step.shards(job.samples)) {
      const bool is_even = shard.number() % 2 == 0;
      shard.backward(is_even ? job.loss(shard.indices())
                             : torch::zeros({}, torch::requires_grad()));
    }
    step.commit(*job.optimizer);
    return false;
  });
  // Samples 0, 1, 4, 5, 8, 9, 12, 13 of 16.
  EXPECT_EQ(job.weight(), -3.25F);
}

TEST(ElasticJob, EvaluatesWithNumbersAndBuffersOfItsOwn) {
  Job job;
  nn::BatchNorm1d norm(1);
  job.job->add("norm", &norm);
  const auto sum = [&] {
    return job.job
        ->evaluate(64,
                   [&](const std::vector<std::size_t>& indices) {
                     Metrics metrics;
                     norm->forward(torch::rand({static_cast<std::int64_t>(indices.size()), 1}));
                     metrics.add("drawn", norm->running_mean.item<double>());
                     return metrics;
                   })
        .means()
        .at("drawn");
  };
  const double first = sum();
  EXPECT_EQ(norm->running_mean.item<float>(), 0);
  EXPECT_EQ(sum(), first);
  job.job->run([&](Step& step) {
    job.train(step);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
    return false;
  });
  EXPECT_NE(sum(), first);
}

TEST(ElasticJob, NoticesRanksAtOtherPlaces) {
  Job job;
  if (job.job->communicator()->rank() == 0) job.samples.load_state({.epoch = 0, .position = 8});
  const auto train = [&] { job.job->run([&](Step& step) { return job.train(step); }); };
  if (job.job->communicator()->size() == 1) return train();
  EXPECT_THAT(train, ThrowsMessage<MismatchError>(HasSubstr("epoch 0 from sample 8 on")));
}

TEST(ElasticJob, NoticesARankThatEndsBeforeTheOthers) {
  Job job;
  const bool is_first = job.job->communicator()->rank() == 0;
  const auto train = [&] {
    job.job->run([&](Step& step) {
      job.train(step);
      return step.number() < (is_first ? 1 : 2);
    });
  };
  if (job.job->communicator()->size() == 1) return train();
  const std::string text = is_first ? "returned false on rank 0 in step 1" : "";
  EXPECT_THAT(train, ThrowsMessage<MismatchError>(HasSubstr(text)));
}

TEST(ElasticJob, NoticesRanksThatShuffleOtherwise) {
  Job job(24, 16, create_communicator("flat")->rank() == 0);
  const auto train = [&] { job.job->run([&](Step& step) { return job.train(step); }); };
  if (job.job->communicator()->size() == 1) return train();
  EXPECT_THAT(train, ThrowsMessage<MismatchError>(HasSubstr("24 shuffled samples")));
}

TEST(ElasticJob, RefusesASecondBackwardAndASecondCommit) {
  Job job;
  job.job->run([&](Step& step) {
    for (Shard& shard : step.shards(job.samples)) {
      shard.backward(job.loss(shard.indices()));
      EXPECT_THAT([&] { shard.backward(job.loss(shard.indices())); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("add its losses up")));
    }
    step.commit(*job.optimizer);
    EXPECT_THAT([&] { step.commit(*job.optimizer); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a second commit()")));
    return false;
  });
  EXPECT_EQ(job.weight(), -7.5F);
}

TEST(ElasticJob, RefusesOptionsThatMakeStepsDependOnRanks) {
  const auto job = create_elastic_job({.shards = kShards});
  nn::Linear model(1, 1);
  const auto make = [&](MultiNodeOptimizerOptions options) {
    options.model = &model;
    return create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(model->parameters(), 0.1), job->communicator(),
        options);
  };
  EXPECT_THAT([&] { make({.double_buffering = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("double buffering")));
  EXPECT_THAT([&] { make({.zero_fill = false}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("zero_fill")));
  EXPECT_THAT([&] { job->load_state(state_at(3, 4)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("give it the same")));
  EXPECT_THAT([&] { job->load_state(state_at(0)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("step 0")));
}

TEST(ElasticJob, RefusesNumbersOfShardsThatDoNotFit) {
  EXPECT_THAT([] { make_job({.shards = 70000}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("65536")));
  EXPECT_THAT([] { make_job({.communicator = "gloo"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("order of its own")));
  EXPECT_THAT([] { make_job({.threads = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("threads")));
  const auto comm = create_communicator("flat");
  if (comm->size() > 1) {
    EXPECT_THAT([] { make_job({.shards = 1}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("leaves some without work")));
    const auto own = static_cast<std::uint64_t>(comm->rank());
    EXPECT_THAT([&] { make_job({.shards = kShards, .seed = own}); },
                ThrowsMessage<MismatchError>(HasSubstr("8 shards, seed 1")));
  }
  ::setenv("CHAINMAIL_SHARDS", "12", 1);
  EXPECT_EQ(create_elastic_job()->shards(), 12U);
  EXPECT_EQ(create_elastic_job({.shards = kShards})->shards(), kShards);
  ::setenv("CHAINMAIL_SHARDS", "many", 1);
  EXPECT_THAT([] { make_job(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("CHAINMAIL_SHARDS=\"many\"")));
  ::unsetenv("CHAINMAIL_SHARDS");
  EXPECT_EQ(create_elastic_job()->shards(), static_cast<std::uint32_t>(comm->size()));
}

}  // namespace
}  // namespace chainmail
