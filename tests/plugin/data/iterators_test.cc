// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Samplers and iterators: which samples, on which rank, in which order, and where they go on.

#ifdef __SANITIZE_THREAD__
// GCC 12 takes moving a short string for reading more than it holds.
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include <torch/torch.h>

#include <chainmail/data/iterators.h>
#include <chainmail/dataset.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;
using Indices = std::vector<std::size_t>;

std::vector<MultiNodeSampler> samplers_of(std::size_t size, int ranks,
                                          const SamplerOptions& options = {}) {
  std::vector<MultiNodeSampler> samplers;
  for (int r = 0; r < ranks; ++r) samplers.emplace_back(size, r, ranks, options);
  return samplers;
}

// What all ranks take in one step; empty at the end of the epoch.
Indices step(std::vector<MultiNodeSampler>& samplers, std::size_t batch_size) {
  Indices all;
  for (MultiNodeSampler& sampler : samplers) {
    if (const auto own = sampler.next(batch_size)) all.insert(all.end(), own->begin(), own->end());
  }
  return all;
}

Indices rest_of_epoch(std::vector<MultiNodeSampler>& samplers, std::size_t batch_size) {
  Indices all;
  for (Indices some = step(samplers, batch_size); !some.empty();
       some = step(samplers, batch_size)) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void reset(std::vector<MultiNodeSampler>& samplers) {
  for (MultiNodeSampler& sampler : samplers) sampler.reset();
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices first_numbers(std::size_t size) {
  Indices all(size);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

const std::vector<std::size_t> kSizes = {0, 1, 2, 4, 19, 97, 1244};

TEST(Sampler, ExactRangesCoverEverythingOnce) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t size : kSizes) {
      for (const std::size_t batch : {1U, 7U, 100U}) {
        auto samplers = samplers_of(size, ranks, {.force_equal_length = false});
        EXPECT_EQ(sorted(rest_of_epoch(samplers, batch)), first_numbers(size));
      }
    }
  }
}

TEST(Sampler, EqualLengthsCoverEverythingInEquallyManySteps) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t size : kSizes) {
      for (const std::size_t batch : {1U, 7U, 100U}) {
        auto samplers = samplers_of(size, ranks);
        std::set<std::size_t> seen;
        std::size_t steps = 0;
        for (;; ++steps) {
          std::vector<std::optional<Indices>> shares;
          for (MultiNodeSampler& sampler : samplers) {
            shares.push_back(sampler.next(batch));
            ASSERT_EQ(shares.back().has_value(), shares.front().has_value());
          }
          if (!shares.front()) break;
          for (const auto& share : shares) {
            EXPECT_EQ(share->size(), shares.front()->size());
            seen.insert(share->begin(), share->end());
          }
        }
        EXPECT_EQ(seen.size(), size);
        EXPECT_EQ(samplers.front().batches_per_epoch(batch), steps);
      }
    }
  }
}

// As one process with a batch that many times larger.
TEST(Sampler, AStepHasTheSameSamplesOnAnyNumberOfRanks) {
  auto alone = samplers_of(97, 1, {.seed = 5});
  for (const int ranks : {2, 3, 4}) {
    auto together = samplers_of(97, ranks, {.seed = 5});
    reset(alone);
    alone.front().load_state({5, 0, 0});
    for (Indices all = step(alone, 12); all.size() == 12; all = step(alone, 12)) {
      EXPECT_EQ(step(together, static_cast<std::size_t>(12 / ranks)), all);
    }
  }
}

TEST(Sampler, EpochsDifferAndSeedsDecide) {
  auto samplers = samplers_of(50, 1, {.seed = 1});
  auto again = samplers_of(50, 1, {.seed = 1});
  auto others = samplers_of(50, 1, {.seed = 2});
  auto plain = samplers_of(50, 1, {.shuffle = false});
  Indices last;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const Indices order = rest_of_epoch(samplers, 8);
    EXPECT_EQ(rest_of_epoch(again, 9), order);
    EXPECT_NE(rest_of_epoch(others, 8), order);
    EXPECT_NE(order, last);
    EXPECT_EQ(rest_of_epoch(plain, 8), first_numbers(50));
    EXPECT_TRUE(rest_of_epoch(samplers, 8).empty());  // until it is reset
    last = order;
    for (auto* all : {&samplers, &again, &others, &plain}) {
      reset(*all);
      EXPECT_EQ(all->front().state().epoch, epoch + 1);
    }
  }
}

// Stopped after every step, gone on with by another number of ranks: no sample lost, none twice.
TEST(Sampler, GoesOnAtTheExactSampleOnOtherRanks) {
  for (const int before : {1, 2, 3, 4}) {
    for (const int after : {1, 2, 3, 4}) {
      for (int steps = 0; steps < 9; ++steps) {
        const SamplerOptions options{.seed = 9, .force_equal_length = false};
        auto samplers = samplers_of(60, before, options);
        rest_of_epoch(samplers, 5);
        reset(samplers);  // the second epoch
        Indices taken;
        for (int i = 0; i < steps; ++i) {
          const Indices some = step(samplers, 5);
          taken.insert(taken.end(), some.begin(), some.end());
        }
        const SamplerState state = samplers.back().state();
        for (const MultiNodeSampler& sampler : samplers) ASSERT_EQ(sampler.state(), state);
        auto resumed = samplers_of(60, after, {.seed = 77, .force_equal_length = false});
        for (MultiNodeSampler& sampler : resumed) {
          sampler.load_state(state);
          sampler.reset();  // as a data loader does at its begin
        }
        const Indices rest = rest_of_epoch(resumed, 5);
        Indices all = state.epoch == 1 ? taken : Indices();
        all.insert(all.end(), rest.begin(), rest.end());
        EXPECT_EQ(sorted(all), first_numbers(60)) << before << " " << after << " " << steps;
        const Indices expected = rest_of_epoch(samplers, 5);
        if (before == after && state.epoch == 1) {
          EXPECT_EQ(rest, expected);
        }
      }
    }
  }
}

TEST(Sampler, RefusesWhatCannotBe) {
  EXPECT_THROW(MultiNodeSampler(5, 2, 2), InvalidArgument);
  MultiNodeSampler sampler(5, 0, 2);
  EXPECT_THROW(sampler.load_state({0, 0, 6}), InvalidArgument);
  EXPECT_THROW(sampler.load_state({0, -1, 0}), InvalidArgument);
  EXPECT_THROW((void)sampler.next(0), InvalidArgument);
}

TEST(Sampler, FeedsTorchsDataLoader) {
  const auto data = torch::data::datasets::TensorDataset(torch::arange(23));
  MultiNodeSampler sampler(23, 1, 2, {.seed = 3});
  auto loader =
      torch::data::make_data_loader(data, sampler, torch::data::DataLoaderOptions().batch_size(4));
  for (int epoch = 0; epoch < 2; ++epoch) {
    MultiNodeSampler expected(23, 1, 2);
    expected.load_state({3, epoch, 0});
    for (const auto& batch : *loader) {
      const auto indices = expected.next(4);
      ASSERT_TRUE(indices);
      ASSERT_EQ(batch.size(), indices->size());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(batch[i].data.item<std::int64_t>(), static_cast<std::int64_t>((*indices)[i]));
      }
    }
    EXPECT_FALSE(expected.next(4));
    EXPECT_EQ(sampler.state(), (SamplerState{3, epoch + 1, 0}));  // copies share their position
  }
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream file;
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  MultiNodeSampler loaded(23, 0, 1);
  loaded.load(in);
  EXPECT_EQ(loaded.state(), (SamplerState{3, 2, 0}));
}

TEST(Sampler, IsRankZerosOnAllRanks) {
  testing::with_communicator({2, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto sampler =
        create_multi_node_sampler(10, comm, {.seed = static_cast<std::uint64_t>(comm->rank())});
    EXPECT_EQ(sampler.state().seed, 0U);
  });
  const auto errors = testing::errors_with_communicator({3}, "flat", [](const CommPtr& comm) {
    (void)create_multi_node_sampler(comm->rank() == 2 ? 9 : 10, comm);
  });
  EXPECT_THAT(errors, Each(HasSubstr("10 samples on rank 0 and 9 on rank 2")));
}

TensorList images(std::int64_t size) {
  return {torch::arange(size * 6).remainder(256).to(torch::kByte).view({size, 6}),
          torch::arange(size).to(torch::kByte)};
}

TEST(TensorIterator, SelectsConvertsAndScales) {
  const TensorList data = images(10);
  TensorIterator batches(data, MultiNodeSampler(10, 0, 1, {.seed = 4}),
                         {.batch_size = 4, .scale = 0.5});
  EXPECT_EQ(batches.batches_per_epoch(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int64_t> seen;
    for (const std::int64_t size : {4, 4, 2}) {
      const auto batch = batches.next();
      ASSERT_TRUE(batch);
      const torch::Tensor& target = batch->at(1);
      ASSERT_EQ(target.sizes(), (std::vector<std::int64_t>{size}));
      EXPECT_EQ(target.scalar_type(), torch::kLong);
      EXPECT_TRUE(
          torch::equal(batch->at(0), data[0].index_select(0, target).to(torch::kFloat) / 2));
      for (std::int64_t i = 0; i < size; ++i) seen.insert(target[i].item<std::int64_t>());
    }
    EXPECT_EQ(seen.size(), 10U);
    EXPECT_FALSE(batches.next());
  }
  EXPECT_THROW(TensorIterator(images(9), MultiNodeSampler(10, 0, 1)), InvalidArgument);
  EXPECT_THROW(TensorIterator(images(10), MultiNodeSampler(10, 0, 1), {.batch_size = 0}),
               InvalidArgument);
}

TEST(MultiNodeIterator, GivesTheMastersBatchesToAll) {
  for (const std::vector<int>& shape : std::vector<std::vector<int>>{{1}, {2}, {3}, {2, 2}}) {
    for (const int batch_size : {4, 7}) {
      testing::with_communicator(shape, "hierarchical", {}, [&](const CommPtr& comm) {
        const int master = comm->size() - 1;
        const auto make = [&] {
          return std::make_shared<TensorIterator>(images(100), MultiNodeSampler(100, 0, 1),
                                                  TensorIteratorOptions{.batch_size = batch_size});
        };
        auto shared =
            create_multi_node_iterator(comm->rank() == master ? make() : nullptr, comm, master);
        const auto expected = make();
        const auto expect_equal = [&] {
          const auto own = expected->next();
          const auto got = shared.next();
          ASSERT_EQ(got.has_value(), own.has_value());
          ASSERT_EQ(shared.state(), expected->state());
          for (std::size_t i = 0; own && i < own->size(); ++i) {
            EXPECT_TRUE(torch::equal((*got)[i], (*own)[i]));
            EXPECT_EQ((*got)[i].scalar_type(), (*own)[i].scalar_type());
          }
        };
        for (int i = 0; i < 3 * 100 / batch_size; ++i) {
          expect_equal();  // batches, and the ends of epochs
        }
        shared.load_state(comm->rank() == master ? SamplerState{0, 1, 20} : SamplerState{});
        expected->load_state({0, 1, 20});
        expect_equal();
      });
    }
  }
}

TEST(MultiNodeIterator, TakesAnyTypeAndLargePositions) {
  struct Source {
    int drawn = 0;
    std::optional<TensorList> next() {
      return ++drawn > 1 ? std::nullopt
                         : std::optional(TensorList{torch::ones({2}, torch::kBool),
                                                    torch::ones({}, torch::kComplexDouble),
                                                    torch::ones({0, 3}, torch::kBFloat16)});
    }
    SamplerState state() const { return {1ULL << 63, 3, (std::int64_t{1} << 40) + drawn}; }
    void load_state(const SamplerState& /*state*/) {}
  };
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    auto shared = create_multi_node_iterator(std::make_shared<Source>(), comm);
    const auto batch = shared.next();
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->size(), 3U);
    EXPECT_EQ((*batch)[1].scalar_type(), torch::kComplexDouble);
    EXPECT_EQ((*batch)[2].sizes(), (std::vector<std::int64_t>{0, 3}));
    EXPECT_EQ(shared.state(), (SamplerState{1ULL << 63, 3, (std::int64_t{1} << 40) + 1}));
    EXPECT_FALSE(shared.next());
  });
}

TEST(MultiNodeIterator, NeedsACommunicator) {
  EXPECT_THROW((void)MultiNodeIterator({}, nullptr, 0), InvalidArgument);
  EXPECT_THROW((void)create_synchronized_iterator(MultiNodeSampler(4, 0, 1, {}), nullptr),
               InvalidArgument);
  EXPECT_THROW((void)create_multi_node_sampler(4, nullptr, {}), InvalidArgument);
}

TEST(MultiNodeIterator, AMasterThatDoesNotExistIsRefused) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    for (const int master : {-1, 2}) {
      try {
        (void)create_multi_node_iterator(std::shared_ptr<TensorIterator>(), comm, master);
        ADD_FAILURE() << master;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("create_multi_node_iterator: root " +
                                            std::to_string(master) + " is not a rank"));
      }
    }
    comm->barrier();
  });
}

TEST(MultiNodeIterator, WhatTheMasterThrowsAllThrow) {
  struct Source {
    std::optional<TensorList> next() { throw std::runtime_error("the file ends here"); }
    SamplerState state() const { return {}; }
    void load_state(const SamplerState& /*state*/) {}
  };
  const auto errors = testing::errors_with_communicator({3}, "flat", [](const CommPtr& comm) {
    auto shared = create_multi_node_iterator(std::make_shared<Source>(), comm, 1);
    EXPECT_THROW((void)shared.next(), InvalidArgument);
    (void)shared.next();
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1: the file ends here")));
  const auto none = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    (void)create_multi_node_iterator(std::shared_ptr<Source>(), comm);
  });
  EXPECT_THAT(none, Each(HasSubstr("no iterator")));
}

TEST(SynchronizedIterator, DrawsRankZerosOrderEverywhere) {
  testing::with_communicator({2, 1}, "flat", {}, [](const CommPtr& comm) {
    const auto seed = static_cast<std::uint64_t>(comm->rank()) + 40;
    auto batches = create_synchronized_iterator(
        TensorIterator(images(30), MultiNodeSampler(30, 0, 1, {.seed = seed}), {.batch_size = 7}),
        comm);
    TensorIterator expected(images(30), MultiNodeSampler(30, 0, 1, {.seed = 40}),
                            {.batch_size = 7});
    for (int i = 0; i < 12; ++i) {
      const auto own = batches.next();
      const auto wanted = expected.next();
      ASSERT_EQ(own.has_value(), wanted.has_value());
      EXPECT_TRUE(!own || torch::equal((*own)[1], (*wanted)[1]));
    }
  });
}

TEST(EmptyDataset, HasAsManySamplesWithoutContent) {
  auto empty = create_empty_dataset(std::vector<int>(13));
  EXPECT_EQ(empty.size(), 13U);
  static_assert(std::is_same_v<decltype(empty.get(0)), std::tuple<>>);
  EXPECT_EQ(create_empty_dataset(torch::data::datasets::TensorDataset(torch::zeros({4}))).size(),
            4U);
}

}  // namespace
}  // namespace chainmail
