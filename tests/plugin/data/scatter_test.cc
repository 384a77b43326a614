// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include <torch/torch.h>

#include <chainmail/dataset.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using ::testing::HasSubstr;

struct Expected {
  std::int64_t size;
  int ranks;
  bool equal;
  std::vector<std::vector<std::int64_t>> ranges;  // begin, end
};

TEST(IndexRange, IsChainerMns) {
  const std::vector<Expected> table = {
      {10, 3, true, {{0, 4}, {3, 7}, {6, 10}}},        {1, 3, true, {{0, 1}, {0, 1}, {0, 1}}},
      {0, 3, true, {{0, 0}, {0, 0}, {0, 0}}},          {10, 3, false, {{0, 4}, {4, 7}, {7, 10}}},
      {2, 3, false, {{0, 1}, {1, 2}, {2, 2}}},         {0, 2, false, {{0, 0}, {0, 0}}},
      {12, 4, true, {{0, 3}, {3, 6}, {6, 9}, {9, 12}}}};
  for (const Expected& expected : table) {
    for (int r = 0; r < expected.ranks; ++r) {
      const IndexRange range = index_range(expected.size, r, expected.ranks, expected.equal);
      EXPECT_EQ((std::vector<std::int64_t>{range.begin, range.end}),
                expected.ranges[static_cast<std::size_t>(r)])
          << expected.size << " over " << expected.ranks << ", rank " << r;
    }
  }
}

TEST(IndexRange, CoversEverythingOnce) {
  for (const std::int64_t size : {0, 1, 2, 4, 19, 1244, 230945}) {
    for (const int ranks : {1, 2, 3, 4, 23, 237}) {
      for (const bool equal : {true, false}) {
        std::int64_t next = 0;
        for (int r = 0; r < ranks; ++r) {
          const IndexRange range = index_range(size, r, ranks, equal);
          ASSERT_LE(range.end, size);
          const std::int64_t length = range.end - range.begin;
          if (equal) {
            ASSERT_EQ(length, (size + ranks - 1) / ranks);
          } else {
            ASSERT_TRUE(length == size / ranks || length == size / ranks + 1);
            ASSERT_EQ(range.end, range.unique_end);
          }
          // The unique parts follow one another without a gap.
          if (range.unique_end != range.begin) {
            ASSERT_EQ(range.begin, next);
            next = range.unique_end;
          }
          ASSERT_LE(range.unique_end, range.end);
        }
        ASSERT_EQ(next, size);
      }
    }
  }
}

TEST(IndexRange, HoldsForHugeSizes) {
  const std::int64_t size = std::int64_t{1} << 62;
  EXPECT_EQ(index_range(size, 1023, 1024).end, size);
}

TEST(IndexRange, RefusesNonsense) {
  EXPECT_THROW((void)index_range(-1, 0, 1), InvalidArgument);
  EXPECT_THROW((void)index_range(5, 2, 2), InvalidArgument);
  EXPECT_THROW((void)index_range(5, -1, 2), InvalidArgument);
}

std::vector<std::vector<std::int64_t>> members(std::int64_t size, int ranks,
                                               const ScatterOptions& options) {
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(ranks));
  testing::with_communicator({ranks}, "flat", {}, [&](const std::shared_ptr<Communicator>& comm) {
    std::vector<std::int64_t> data(static_cast<std::size_t>(size));
    std::iota(data.begin(), data.end(), 100);
    auto part = scatter_dataset(data, comm, options);
    auto& own = result[static_cast<std::size_t>(comm->rank())];
    for (std::size_t i = 0; i < part.size().value(); ++i) own.push_back(part.get(i) - 100);
    EXPECT_EQ(own, part.indices());
  });
  return result;
}

TEST(ScatterDataset, SameSeedGivesTheSameMembers) {
  const auto first = members(101, 3, {.shuffle = true, .seed = 5});
  EXPECT_EQ(first, members(101, 3, {.shuffle = true, .seed = 5}));
  EXPECT_NE(first, members(101, 3, {.shuffle = true, .seed = 6}));
}

TEST(ScatterDataset, EveryRootAndBothModesCoverTheDataset) {
  for (const std::int64_t size : {0, 1, 3, 14}) {
    for (const int root : {0, 1, 2}) {
      for (const bool equal : {true, false}) {
        const auto parts =
            members(size, 3, {.shuffle = true, .root = root, .force_equal_length = equal});
        std::set<std::int64_t> all;
        std::size_t count = 0;
        for (const auto& part : parts) {
          all.insert(part.begin(), part.end());
          count += part.size();
        }
        EXPECT_EQ(all.size(), static_cast<std::size_t>(size));
        EXPECT_EQ(count, static_cast<std::size_t>(equal ? (size + 2) / 3 * 3 : size));
      }
    }
  }
}

// Ranks that think otherwise of every option but the root itself follow.
TEST(ScatterDataset, TheRootsOptionsHoldForAll) {
  for (const int ranks : {2, 3}) {
    for (const bool shuffle : {false, true}) {
      for (const bool equal : {false, true}) {
        const ScatterOptions of_root{
            .shuffle = shuffle, .seed = 3, .root = 1, .force_equal_length = equal};
        const ScatterOptions of_others{
            .shuffle = !shuffle, .seed = 4, .root = 1, .force_equal_length = !equal};
        const auto wanted = members(11, ranks, of_root);
        testing::with_communicator({ranks}, "flat", {}, [&](const auto& comm) {
          const ScatterOptions& own = comm->rank() == 1 ? of_root : of_others;
          EXPECT_EQ(scatter_indices(11, comm, own).indices,
                    wanted[static_cast<std::size_t>(comm->rank())]);
          EXPECT_EQ(scatter_index(11, comm, own).end,
                    index_range(11, comm->rank(), ranks, equal).end);
          comm->barrier();
        });
      }
    }
  }
}

TEST(ScatterDataset, WithoutDuplicatesCountsEverySampleOnce) {
  std::mutex mutex;
  std::multiset<std::int64_t> all;
  testing::with_communicator({3}, "flat", {}, [&](const std::shared_ptr<Communicator>& comm) {
    const std::vector<std::int64_t> data(10);
    const auto unique =
        scatter_dataset(data, comm, {.shuffle = true, .seed = 1}).without_duplicates();
    const std::lock_guard lock(mutex);
    all.insert(unique.indices().begin(), unique.indices().end());
  });
  EXPECT_EQ(std::vector<std::int64_t>(all.begin(), all.end()),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ScatterDataset, FeedsATorchDataLoader) {
  testing::with_communicator({2}, "flat", {}, [](const std::shared_ptr<Communicator>& comm) {
    const torch::data::datasets::TensorDataset whole(torch::arange(10));
    auto part = scatter_dataset(whole, comm);
    auto loader =
        torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(part), 5);
    std::int64_t sum = 0;
    for (const auto& batch : *loader) {
      for (const auto& example : batch) sum += example.data.item<std::int64_t>();
    }
    EXPECT_EQ(sum, comm->rank() == 0 ? 10 : 35);
  });
}

TEST(ScatterDataset, DifferentSizesAreAMismatchOnAllRanks) {
  const auto errors =
      testing::errors_with_communicator({3}, "flat", [](const std::shared_ptr<Communicator>& comm) {
        const std::vector<int> data(comm->rank() == 2 ? 7 : 8);
        (void)scatter_dataset(data, comm);
      });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("8 samples on rank 0 and 7 on rank 2"));
  }
}

TEST(ScatterDataset, ARootThatDoesNotExistIsRefused) {
  testing::with_communicator({3}, "flat", {}, [](const std::shared_ptr<Communicator>& comm) {
    const std::vector<int> data(8);
    for (const int root : {-1, 3, 1000}) {
      for (const bool shuffle : {false, true}) {
        const ScatterOptions options{.shuffle = shuffle, .root = root};
        const auto expect_refused = [&](const char* name, const std::function<void()>& call) {
          try {
            call();
            ADD_FAILURE() << name << " takes root " << root << (shuffle ? " shuffled" : "");
          } catch (const InvalidArgument& error) {
            EXPECT_EQ(error.what(), std::string(name) + ": root " + std::to_string(root) +
                                        " is not a rank of this communicator of 3");
          }
        };
        expect_refused("scatter_dataset", [&] { (void)scatter_dataset(data, comm, options); });
        expect_refused("scatter_dataset", [&] { (void)scatter_indices(8, comm, options); });
        expect_refused("scatter_index", [&] { (void)scatter_index(8, comm, options); });
      }
    }
    comm->barrier();  // nothing was sent, the communicator is as good as before
  });
}

TEST(ScatterIndex, NeedsACommunicator) {
  const std::vector<int> data(8);
  for (const auto& call : std::vector<std::function<void()>>{
           [] { (void)scatter_index(8, nullptr); }, [] { (void)scatter_indices(8, nullptr); },
           [&] { (void)scatter_dataset(data, nullptr); }}) {
    EXPECT_THROW(call(), InvalidArgument);
  }
}

TEST(ScatterIndex, TakesTheRootsSize) {
  testing::with_communicator({3}, "flat", {}, [](const std::shared_ptr<Communicator>& comm) {
    const IndexRange range = scatter_index(comm->rank() == 1 ? 10 : 0, comm, {.root = 1});
    EXPECT_EQ(range.begin, index_range(10, comm->rank(), 3).begin);
    EXPECT_EQ(range.end, index_range(10, comm->rank(), 3).end);
  });
}

}  // namespace
}  // namespace chainmail
