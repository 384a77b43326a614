// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/store_server.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::JobMessage;

class StoreServerTest : public ::testing::Test {
 protected:
  // "rank:id=status:value" of each reply so far, then forgets them.
  std::string replies() { return std::exchange(replies_, {}); }
  void ask(std::uint32_t rank, JobMessage type, BodyWriter body) {
    store_.handle(rank, {type, 0, body.take()});
  }
  void set(const std::string& key, const std::string& value) {
    ask(0, JobMessage::kStoreSet, std::move(BodyWriter().text(key).text(value)));
  }
  void get(std::uint32_t rank, std::uint32_t id, const std::string& key) {
    ask(rank, JobMessage::kStoreGet, std::move(BodyWriter().u32(id).text(key)));
  }
  void add(const std::string& key, std::int64_t amount) {
    ask(0, JobMessage::kStoreAdd, std::move(BodyWriter().u32(1).text(key).i64(amount)));
  }
  void compare_set(const std::string& key, const std::string& from, const std::string& to) {
    ask(0, JobMessage::kStoreCompareSet,
        std::move(BodyWriter().u32(1).text(key).text(from).text(to)));
  }

  std::string replies_;
  StoreServer store_{[this](std::uint32_t rank, JobMessage type, const std::string& bytes) {
    ASSERT_EQ(type, JobMessage::kReply);
    BodyReader body(bytes);
    const std::uint32_t id = body.u32();
    const int status = body.u8();
    replies_ += (replies_.empty() ? "" : " ") + std::to_string(rank) + ":" + std::to_string(id) +
                "=" + std::to_string(status) + ":" + body.text();
    EXPECT_TRUE(body.at_end());
  }};
};

TEST_F(StoreServerTest, GetWaitsForSet) {
  get(1, 7, "k");
  get(2, 8, "k");
  EXPECT_EQ(replies(), "");
  set("other", "x");
  EXPECT_EQ(replies(), "");
  set("k", "v");
  EXPECT_EQ(replies(), "1:7=1:v 2:8=1:v");
  get(3, 9, "k");
  EXPECT_EQ(replies(), "3:9=1:v");
  set("k", "w");
  EXPECT_EQ(replies(), "") << "a waiter is answered once";
}

TEST_F(StoreServerTest, ForgottenRanksGetNothing) {
  get(1, 7, "k");
  get(2, 8, "k");
  store_.forget(1);
  set("k", "v");
  EXPECT_EQ(replies(), "2:8=1:v");
}

TEST_F(StoreServerTest, TryGetSaysWhetherTheKeyExists) {
  ask(0, JobMessage::kStoreTryGet, std::move(BodyWriter().u32(1).text("k")));
  EXPECT_EQ(replies(), "0:1=0:");
  set("k", "");
  ask(0, JobMessage::kStoreTryGet, std::move(BodyWriter().u32(2).text("k")));
  EXPECT_EQ(replies(), "0:2=1:");
}

TEST_F(StoreServerTest, AddCountsInDecimalAndWakesWaiters) {
  get(3, 5, "n");
  add("n", 4);
  EXPECT_EQ(replies(), "3:5=1:4 0:1=1:4");
  add("n", -10);
  EXPECT_EQ(replies(), "0:1=1:-6");
  set("n", "7");
  add("n", 1);
  EXPECT_EQ(replies(), "0:1=1:8");
}

TEST_F(StoreServerTest, AddRefusesWhatIsNoNumber) {
  set("n", "7x");
  add("n", 1);
  EXPECT_EQ(replies(), "0:1=2:the value of 'n' is not a number");
  set("n", std::to_string(INT64_MAX));
  add("n", 1);
  EXPECT_EQ(replies(), "0:1=2:the value of 'n' would overflow 64 bits");
}

TEST_F(StoreServerTest, CompareSetHasTheSemanticsOfC10d) {
  compare_set("k", "wrong", "a");
  EXPECT_EQ(replies(), "0:1=1:wrong") << "a missing key hands the expectation back";
  compare_set("k", "", "a");
  EXPECT_EQ(replies(), "0:1=1:a");
  compare_set("k", "b", "c");
  EXPECT_EQ(replies(), "0:1=1:a");
  compare_set("k", "a", "c");
  EXPECT_EQ(replies(), "0:1=1:c");
}

TEST_F(StoreServerTest, AppendDeleteCount) {
  ask(0, JobMessage::kStoreAppend, std::move(BodyWriter().text("k").text("ab")));
  ask(0, JobMessage::kStoreAppend, std::move(BodyWriter().text("k").text("cd")));
  get(0, 1, "k");
  EXPECT_EQ(replies(), "0:1=1:abcd");
  ask(0, JobMessage::kStoreCount, std::move(BodyWriter().u32(2)));
  EXPECT_EQ(replies(), "0:2=1:1");
  ask(0, JobMessage::kStoreDelete, std::move(BodyWriter().u32(3).text("k")));
  ask(0, JobMessage::kStoreDelete, std::move(BodyWriter().u32(4).text("k")));
  EXPECT_EQ(replies(), "0:3=1: 0:4=0:");
}

TEST_F(StoreServerTest, ValuesThatNoFrameCarriesAreRefused) {
  for (int i = 0; i < 2; ++i) {
    const auto append = [&] {
      ask(0, JobMessage::kStoreAppend,
          std::move(BodyWriter().text("k").text(std::string(600000, 'x'))));
    };
    if (i == 0) {
      append();
    } else {
      EXPECT_THROW(append(), SystemError);
    }
  }
}

TEST_F(StoreServerTest, TruncatedRequestsAreRefused) {
  EXPECT_THROW(store_.handle(0, {JobMessage::kStoreGet, 0, "ab"}), SystemError);
  EXPECT_THROW(store_.handle(0, {JobMessage::kStoreSet, 0, ""}), SystemError);
}

TEST_F(StoreServerTest, DropsAllKeysThatBeginAlike) {
  for (const char* key : {"world", "world1", "world1/", "world1/a", "world10/a", "world2/a"}) {
    set(key, "v");
  }
  store_.erase_all("world1/");
  get(1, 1, "world1");
  get(1, 2, "world10/a");
  get(1, 3, "world2/a");
  get(1, 4, "world1/a");
  EXPECT_EQ(replies(), "1:1=1:v 1:2=1:v 1:3=1:v");
  set("world1/a", "w");
  EXPECT_EQ(replies(), "1:4=1:w");
  store_.erase_all("no such");
}

TEST(StoreServer, DroppedKeysLeaveTheirRoom) {
  StoreServer store([](std::uint32_t, JobMessage, const std::string&) {}, 1200);
  for (int round = 0; round < 50; ++round) {
    store.handle(0, {JobMessage::kStoreSet, 0,
                     BodyWriter()
                         .text("world" + std::to_string(round) + "/a")
                         .text(std::string(800, 'x'))
                         .take()});
    store.erase_all("world" + std::to_string(round) + "/");
  }
}

TEST(StoreServer, HoldsNoMoreThanItsLimit) {
  StoreServer store([](std::uint32_t, JobMessage, const std::string&) {}, 1200);
  const auto set = [&](const std::string& key, std::size_t bytes) {
    store.handle(
        0, {JobMessage::kStoreSet, 0, BodyWriter().text(key).text(std::string(bytes, 'x')).take()});
  };
  set("a", 500);
  set("a", 1000);  // in place of the old one
  EXPECT_THROW(set("b", 100), StoreFull);
  store.handle(0, {JobMessage::kStoreDelete, 0, BodyWriter().u32(1).text("a").take()});
  set("b", 100);
  // Who waits takes room as well, until it is gone.
  const auto wait = [&](std::uint32_t rank, const std::string& key) {
    store.handle(rank, {JobMessage::kStoreGet, 0, BodyWriter().u32(1).text(key).take()});
  };
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) wait(1, "no such key " + std::to_string(i));
      },
      StoreFull);
  store.forget(1);
  set("c", 800);
  wait(1, "d");
  set("d", 1);
  EXPECT_THROW(set("e", 100), StoreFull);
  set("e", 30);
}

TEST(StoreServer, ManyShortKeysAreNotFree) {
  StoreServer store([](std::uint32_t, JobMessage, const std::string&) {}, 10'000);
  const auto change = [&](JobMessage type, const std::string& key) {
    BodyWriter body;
    if (type == JobMessage::kStoreDelete) body.u32(1);
    body.text(key);
    if (type == JobMessage::kStoreSet) body.text("");
    store.handle(0, {type, 0, body.take()});
  };
  for (int round = 0; round < 3; ++round) {
    int keys = 0;
    try {
      for (; keys < 1000; ++keys) change(JobMessage::kStoreSet, std::to_string(keys));
    } catch (const StoreFull&) {
    }
    EXPECT_GT(keys, 100);
    EXPECT_LT(keys, 200);
    while (keys-- > 0) change(JobMessage::kStoreDelete, std::to_string(keys));
  }
}

TEST(StoreServer, AppendingTakesRoomForWhatIsAdded) {
  StoreServer store([](std::uint32_t, JobMessage, const std::string&) {}, 10'000);
  for (int i = 0; i < 90; ++i) store.append("list", std::string(100, 'x'));
  EXPECT_THROW(store.append("list", std::string(2000, 'x')), StoreFull);
  store.append("list", std::string(100, 'x'));  // the list is as it was
}

}  // namespace
}  // namespace chainmail::launch
