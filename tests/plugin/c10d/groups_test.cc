// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Groups made of groups: split, merge, overlap; what is refused; and what is left of them when they
// are gone.

#include <chainmail/error.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/ops/support/dev_shm.h"
#include "tests/plugin/c10d/job_group.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

c10::intrusive_ptr<c10d::Store> prefixed(const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, make_job_store(std::chrono::seconds{30}));
}

float sum_over(c10d::Backend& group, float mine) {
  std::vector<at::Tensor> tensors{torch::tensor({mine})};
  group.allreduce(tensors)->wait();
  return tensors[0].item<float>();
}

TEST(Split, ByColourWithOneStoreAndName) {
  const auto group = make_group();
  const BackendPtr whole = group->getBackend(c10::kCPU);
  ASSERT_TRUE(whole->supportsSplitting());
  // Even and odd ranks; both halves get the same store and the same options.
  std::vector<int> mine;
  for (int rank = job().rank % 2; rank < job().size; rank += 2) mine.push_back(rank);
  auto options = whole->getBackendOptions();
  options->group_name = "half";
  const BackendPtr half = whole->split(prefixed("halves"), mine, options);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->getSize(), static_cast<int>(mine.size()));
  EXPECT_EQ(half->getRank(), job().rank / 2);
  float expected = 0;
  for (const int rank : mine) expected += static_cast<float>(rank + 1);
  EXPECT_EQ(sum_over(*half, static_cast<float>(job().rank + 1)), expected);
  const auto inherited = half->getBackendOptions();
  EXPECT_EQ(inherited->backend, "chainmail");
  EXPECT_EQ(inherited->group_name, "half");
  EXPECT_EQ(inherited->global_ranks_in_group, std::vector<std::uint64_t>(mine.begin(), mine.end()));
}

TEST(Split, RanksThatAreNotInItGetNothing) {
  const auto group = make_group();
  const BackendPtr whole = group->getBackend(c10::kCPU);
  const BackendPtr first = whole->split(prefixed("first"), {0}, whole->getBackendOptions());
  EXPECT_EQ(static_cast<bool>(first), job().rank == 0);
  if (first) {
    EXPECT_EQ(sum_over(*first, 3), 3);  // alone
  }
  EXPECT_THROW(whole->split(prefixed("x"), {0, job().size}, nullptr), c10::Error);
  EXPECT_THROW(whole->split(prefixed("x"), {0, 0}, nullptr), c10::Error);
}

TEST(Split, RanksInAnotherOrderAreNumberedInIt) {
  const auto group = make_group();
  std::vector<int> reversed;
  for (int rank = job().size - 1; rank >= 0; --rank) reversed.push_back(rank);
  const BackendPtr turned =
      group->getBackend(c10::kCPU)->split(prefixed("turned"), reversed, nullptr);
  EXPECT_EQ(turned->getRank(), job().size - 1 - job().rank);
  std::vector<at::Tensor> inputs{torch::tensor({job().rank})};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < job().size; ++i) outputs[0].push_back(torch::zeros({1}, at::kInt));
  inputs[0] = inputs[0].to(at::kInt);
  turned->allgather(outputs, inputs)->wait();
  for (int i = 0; i < job().size; ++i) {
    EXPECT_EQ(outputs[0][static_cast<std::size_t>(i)].item<int>(), job().size - 1 - i);
  }
}

TEST(Split, ThroughProcessGroup) {
  const auto group = make_group();
  std::vector<int> all;
  for (int rank = 0; rank < job().size; ++rank) all.push_back(rank);
  const auto part = group->splitGroup(all, std::chrono::milliseconds{20'000}, std::nullopt,
                                      "copy of all", std::nullopt);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->getGroupName(), "copy of all");
  EXPECT_EQ(part->getBackend(c10::kCPU)->getBackendOptions()->timeout.count(), 20'000);
  std::vector<at::Tensor> tensors{torch::ones({3})};
  part->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0][2].item<float>(), static_cast<float>(job().size));
}

TEST(Split, KeepsTheNodesOfTheGroup) {
  if (job().size < 4) {
    GTEST_SKIP() << "needs four ranks";
  }
  BackendOptions options;
  options.algorithm = "single_node";
  options.node_ids = {"left", "left", "left", "left"};
  const auto group = make_group(options);
  const BackendPtr whole = group->getBackend(c10::kCPU);
  const auto pair = job().rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
  // single_node would refuse two nodes.
  EXPECT_EQ(sum_over(*whole->split(prefixed("pairs"), pair, nullptr), 1), 2);
}

TEST(Merge, PutsRanksTogether) {
  const auto group = make_group();
  const BackendPtr whole = group->getBackend(c10::kCPU);
  const BackendPtr alone = whole->split(prefixed("alone"), {job().rank}, nullptr);
  const BackendPtr merged = alone->merge(prefixed("merged"), nullptr, job().rank, job().size);
  EXPECT_EQ(sum_over(*merged, 1), static_cast<float>(job().size));
}

TEST(Groups, NeedAPositiveTimeLimit) {
  // Refused before they meet: each rank says so by itself.
  for (const int limit_ms : {0, -1, -1000}) {
    BackendOptions options;
    options.timeout = std::chrono::milliseconds{limit_ms};
    try {
      static_cast<void>(make_group(options));
      FAIL() << "a limit of " << limit_ms << " ms was accepted";
    } catch (const InvalidArgument& refusal) {
      EXPECT_THAT(refusal.what(), ::testing::HasSubstr("must be positive, got " +
                                                       std::to_string(limit_ms) + " ms"));
    }
  }
  EXPECT_EQ(make_group()->getSize(), job().size);
}

TEST(Groups, ASecondShutdownLeavesTheFirstItsResultAndLaterOnesARefusal) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  const auto group = make_group();  // the first operation is to connect it
  std::vector<at::Tensor> ones{torch::ones({3})};
  if (job().rank == 0) {
    const auto work = group->allreduce(ones);
    std::thread first([&] { group->shutdown(); });
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    group->shutdown();
    first.join();
    work->wait();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds{600});
    group->allreduce(ones)->wait();
    group->shutdown();
  }
  EXPECT_TRUE(torch::equal(ones[0], torch::full({3}, static_cast<float>(job().size))));
  try {
    group->monitoredBarrier({}, false);
    FAIL() << "no exception";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the group was shut down"));
  }
}

TEST(Groups, OverlappingOnesAtOnce) {
  // All ranges of ranks; every rank is in many of them and they run at the same time.
  const auto group = make_group();
  const BackendPtr whole = group->getBackend(c10::kCPU);
  struct Part {
    BackendPtr backend;
    float expected = 0;
    std::vector<at::Tensor> tensors;
    c10::intrusive_ptr<c10d::Work> work;
  };
  std::vector<Part> parts;
  for (int first = 0; first < job().size; ++first) {
    for (int end = first + 1; end <= job().size; ++end) {
      std::vector<int> ranks;
      float expected = 0;
      for (int rank = first; rank < end; ++rank) {
        ranks.push_back(rank);
        expected += static_cast<float>(rank);
      }
      if (BackendPtr part = whole->split(prefixed("range"), ranks, nullptr)) {
        parts.push_back({part, expected, {torch::full({1000}, job().rank, at::kFloat)}, {}});
      }
    }
  }
  for (int round = 0; round < 20; ++round) {
    // Each rank begins somewhere else.
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Part& part = parts[(i + static_cast<std::size_t>(job().rank)) % parts.size()];
      part.tensors[0].fill_(job().rank);
      part.work = part.backend->allreduce(part.tensors);
    }
    for (Part& part : parts) {
      part.work->wait();
      ASSERT_EQ(part.tensors[0][999].item<float>(), part.expected);
    }
  }
}

// What is left.

std::int64_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

std::int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") {
      std::int64_t kib = 0;
      status >> kib;
      return kib;
    }
  }
  return -1;
}

std::int64_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
}

// Those of segments and buffers between ranks, and of nothing else.
std::int64_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t permissions = line.find(' ') + 1;
    count += line.compare(permissions + 3, 1, "s") == 0 ? 1 : 0;
  }
  return count;
}

struct Footprint {
  std::int64_t descriptors = entries("/proc/self/fd");
  std::int64_t threads = entries("/proc/self/task");
  std::size_t shared_memory = test::files_in_dev_shm();
  std::int64_t maps = mappings();
  std::int64_t shared_maps = shared_mappings();
  std::int64_t resident = resident_kib();
};

void make_and_destroy(c10d::ProcessGroup& all, const c10::intrusive_ptr<c10d::Store>& store,
                      int first, int count) {
  constexpr std::size_t kAlive = 20;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> alive;
  for (int i = first; i < first + count; ++i) {
    BackendOptions options;
    options.group_name = "one of many " + std::to_string(i);
    options.timeout = std::chrono::seconds{30};
    alive.push_back(make_process_group(store, job().rank, job().size, options));
    std::vector<at::Tensor> tensors{torch::ones({100})};
    alive.back()->allreduce(tensors)->wait();
    ASSERT_EQ(tensors[0][99].item<float>(), static_cast<float>(job().size));
    if (alive.size() == kAlive) alive.clear();
  }
  alive.clear();
  all.barrier()->wait();
}

TEST(Groups, AThousandLeaveNothingBehind) {
  const int count = job().size == 2 ? 1000 : 200;  // of more ranks than processors they take long
  const auto all = make_group();
  const auto store = make_job_store(std::chrono::seconds{30});
  make_and_destroy(*all, store, 0, 40);  // what is made once is made now
  all->barrier()->wait();
  const Footprint before;
  const std::int64_t keys_before = store->getNumKeys();
  all->barrier()->wait();  // nobody makes keys before all have counted
  make_and_destroy(*all, store, 40, count);
  // One that has been joined is in the list until the system has taken it away.
  for (int i = 0; i < 500 && entries("/proc/self/task") > before.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  const Footprint after;
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);  // who is idle for long has ended
  EXPECT_EQ(after.shared_memory, before.shared_memory);
  EXPECT_EQ(after.shared_maps, before.shared_maps);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  EXPECT_LE(after.maps, before.maps + 32);                           // the heap's own come and go
  EXPECT_NEAR(static_cast<double>(after.resident), static_cast<double>(before.resident), 4096);
#endif
  // The last rank out takes the keys along, and may not be through with it yet.
  // On a slow machine a rank that waits for long writes down where it is, once for each group: the
  // group of all is still there.
  const std::int64_t most_keys = keys_before + job().size;
  for (int i = 0; i < 500 && store->getNumKeys() > most_keys; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  EXPECT_LE(store->getNumKeys(), most_keys);
  std::cout << count << " groups: descriptors " << before.descriptors << " to " << after.descriptors
            << ", threads " << before.threads << " to " << after.threads << ", /dev/shm "
            << before.shared_memory << " to " << after.shared_memory << ", maps " << before.maps
            << " to " << after.maps << " (" << before.shared_maps << " to " << after.shared_maps
            << " shared)"
            << ", resident KiB " << before.resident << " to " << after.resident << ", store keys "
            << keys_before << " to " << store->getNumKeys() << "\n";
  all->barrier()->wait();
}

TEST(Groups, HundredsAtOnce) {
  constexpr std::size_t kGroups = 200;
  // 400 threads: nothing here is waited for that long but what the machine is too busy for.
  const auto limit =
      std::chrono::ceil<std::chrono::milliseconds>(patient(std::chrono::seconds{60}));
  const auto store = make_job_store(std::chrono::seconds{30});
  const Footprint before;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
  for (std::size_t i = 0; i < kGroups; ++i) {
    BackendOptions options;
    options.group_name = "at once " + std::to_string(i);
    options.timeout = limit;
    groups.push_back(make_process_group(store, job().rank, job().size, options));
  }
  // All of them at work, each rank in its own order.
  std::vector<std::vector<at::Tensor>> tensors;
  for (std::size_t i = 0; i < kGroups; ++i) tensors.push_back({torch::full({10}, i, at::kFloat)});
  std::vector<c10::intrusive_ptr<c10d::Work>> works(kGroups);
  for (std::size_t i = 0; i < kGroups; ++i) {
    const std::size_t mine = (i + static_cast<std::size_t>(job().rank) * 37) % kGroups;
    works[mine] = groups[mine]->allreduce(tensors[mine]);
  }
  for (std::size_t i = 0; i < kGroups; ++i) {
    works[i]->wait();
    ASSERT_EQ(tensors[i][0][9].item<float>(),
              static_cast<float>(i) * static_cast<float>(job().size));
  }
  const Footprint during;
  std::cout << kGroups << " groups at once: descriptors " << before.descriptors << " to "
            << during.descriptors << ", threads " << before.threads << " to " << during.threads
            << ", resident KiB " << before.resident << " to " << during.resident << "\n";
  EXPECT_LE(during.descriptors,
            before.descriptors + job().size * static_cast<std::int64_t>(kGroups));
}

TEST(Groups, TheSameNameAgainAndAgain) {
  const auto store = make_job_store(std::chrono::seconds{30});
  for (int i = 0; i < 30; ++i) {
    BackendOptions options;
    options.group_name = "again";
    options.timeout = std::chrono::seconds{30};
    const auto group = make_process_group(store, job().rank, job().size, options);
    if (i % 3 == 2) continue;  // not even used
    std::vector<at::Tensor> tensors{torch::full({1}, i, at::kFloat)};
    group->allreduce(tensors)->wait();
    ASSERT_EQ(tensors[0].item<float>(), static_cast<float>(i * job().size));
  }
}

}  // namespace
}  // namespace chainmail::internal
