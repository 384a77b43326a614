// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that comes to a group which others have given up is told so, and groups of the same name
// that are made later have nothing to do with it.

#include "plugin/c10d/store/group/group_rendezvous.h"
#include "plugin/c10d/store/group/given_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::chrono::minutes kAmple{10};
constexpr milliseconds kBrief{50};

using StorePtr = c10::intrusive_ptr<c10d::Store>;

class GivenUpGroup : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "hash") store_ = c10::make_intrusive<c10d::HashStore>();
    if (kind == "file") store_ = c10::make_intrusive<c10d::FileStore>(path_, -1);
    if (kind == "tcp") {
      c10d::TCPStoreOptions options;
      options.port = 0;
      options.isServer = true;
      options.waitWorkers = false;
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    }
  }
  void TearDown() override {
    store_.reset();
    std::remove(path_.c_str());
  }

  std::vector<std::string> enter(int rank, int size, milliseconds limit) {
    GroupRendezvous group(store_, "g", rank, size);
    return group.enter("text of " + std::to_string(rank), Deadline::after(limit));
  }
  std::future<std::vector<std::string>> begin_to_enter(int rank, int size, milliseconds limit) {
    return std::async(std::launch::async, [=, this] { return enter(rank, size, limit); });
  }
  // Rank 0 has told the others where to meet.
  void wait_until_open() {
    while (!store_->check({"chainmail/g/open"})) std::this_thread::yield();
  }
  void expect_told(int rank, int size, int by) {
    try {
      static_cast<void>(enter(rank, size, kAmple));
      FAIL() << "nobody was there";
    } catch (const GaveUp& error) {
      EXPECT_EQ(error.member(), by);
      EXPECT_EQ(error.how(), "on " + host_name() + " gave up after 50 ms of waiting");
    }
  }
  // `first` comes before the others.
  void expect_group(int size, int first) {
    std::vector<std::future<std::vector<std::string>>> ranks;
    ranks.push_back(begin_to_enter(first, size, kAmple));
    if (first == 0) wait_until_open();
    for (int rank = 0; rank < size; ++rank) {
      if (rank != first) ranks.push_back(begin_to_enter(rank, size, kAmple));
    }
    for (auto& texts : ranks) EXPECT_EQ(texts.get().back(), "text of " + std::to_string(size - 1));
  }
  void expect_no_notice() {
    for (const char* key : {"0/1", "0/2", "1/0", "2/0", "some"}) {
      EXPECT_FALSE(store_->check({std::string("chainmail/g/gave_up/") + key})) << key;
    }
  }

  StorePtr store_;
  const std::string path_ =
      ::testing::TempDir() + "group_rendezvous_test_" + std::to_string(::getpid());
};

TEST_P(GivenUpGroup, IsToldToARankThatComesLater) {
  for (int round = 0; round < 2; ++round) {
    EXPECT_THROW((void)enter(0, 2, kBrief), TimeoutError);
    expect_told(1, 2, 0);
    expect_no_notice();
    EXPECT_THROW((void)enter(1, 2, kBrief), TimeoutError);
    expect_told(0, 2, 1);
    expect_no_notice();
    expect_group(2, 1 - round);
  }
}

TEST_P(GivenUpGroup, IsForgottenWhenItsRankTriesAgain) {
  EXPECT_THROW((void)enter(0, 2, kBrief), TimeoutError);
  expect_group(2, 0);
  expect_no_notice();
  expect_group(2, 1);
  EXPECT_THROW((void)enter(1, 2, kBrief), TimeoutError);
  auto again = begin_to_enter(1, 2, kAmple);
  while (store_->check({"chainmail/g/gave_up/1/0"})) std::this_thread::yield();
  EXPECT_EQ(enter(0, 2, kAmple).size(), 2U);
  EXPECT_EQ(again.get().size(), 2U);
}

TEST_P(GivenUpGroup, IsToldOnlyToRanksThatHaveNotCome) {
  auto second = begin_to_enter(1, 3, kBrief);
  EXPECT_THROW((void)enter(0, 3, kBrief), TimeoutError);
  EXPECT_THROW((void)second.get(), TimeoutError);
  expect_told(2, 3, 0);
  expect_group(3, 1);
}

// What rank 0 leaves for it comes after it has taken its own name away.
TEST_P(GivenUpGroup, IsNotToldToARankThatCameAndFailedBefore) {
  auto first = begin_to_enter(0, 3, 10 * kBrief);
  wait_until_open();
  EXPECT_THROW((void)enter(1, 3, kBrief), TimeoutError);
  EXPECT_THROW((void)first.get(), TimeoutError);
  // Shorter than others here: were it told, the others would wait for it.
  constexpr std::chrono::minutes kEnough{1};
  auto again = begin_to_enter(1, 3, kEnough);
  while (store_->check({"chainmail/g/gave_up/0/1"})) std::this_thread::yield();
  auto third = begin_to_enter(2, 3, kEnough);
  EXPECT_EQ(enter(0, 3, kEnough).size(), 3U);
  EXPECT_EQ(again.get().size(), 3U);
  EXPECT_EQ(third.get().size(), 3U);
}

TEST_P(GivenUpGroup, IsToldToTheFirstRankByAllOthers) {
  EXPECT_THROW((void)enter(1, 3, kBrief), TimeoutError);
  EXPECT_THROW((void)enter(2, 3, kBrief), TimeoutError);
  expect_told(0, 3, 1);
  expect_no_notice();
  expect_group(3, 2);
}

TEST_P(GivenUpGroup, IsToldOnByTheFirstRank) {
  EXPECT_THROW((void)enter(1, 3, kBrief), TimeoutError);
  expect_told(0, 3, 1);
  try {
    static_cast<void>(enter(2, 3, kAmple));
    FAIL() << "nobody was there";
  } catch (const GaveUp& error) {
    EXPECT_EQ(error.member(), 0);
    EXPECT_THAT(error.how(), HasSubstr("gave up (member 1 on "));
  }
  expect_no_notice();
}

INSTANTIATE_TEST_SUITE_P(Stores, GivenUpGroup, ::testing::Values("hash", "file", "tcp"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace chainmail::internal
