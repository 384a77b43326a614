// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Shared memory of the ranks of a node: who may attach, and what it keeps of a failure.

#include "ops/comm/shm/memory/segment.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/ranks.h"

namespace chainmail::ops::shm {
namespace {

Layout small_layout() {
  Layout layout;
  layout.ranks = 2;
  layout.chunk_bytes = 4096;
  return layout;
}

TEST(Segment, IsAttachedByItsTokenAlone) {
  const Layout layout = small_layout();
  const Segment segment = Segment::create(layout);
  const std::string offer = segment.offer();
  EXPECT_NO_THROW(static_cast<void>(Segment::attach(layout, offer)));
  // What comes from the rendezvous may have any length; beyond the field there are other bytes.
  const std::string path = offer.substr(0, offer.find('\n'));
  const std::string another = Segment::create(layout).offer().substr(path.size());
  for (const std::string& other :
       {path + another, path + "\n", path, offer.substr(0, offer.size() - 1),
        offer + std::string(64, '\0')}) {
    EXPECT_THROW(static_cast<void>(Segment::attach(layout, other)), SystemError) << other;
  }
}

TEST(Segment, SaysThatWhoOfferedItHasEnded) {
  const Layout layout = small_layout();
  std::string offer;
  {
    const Segment segment = Segment::create(layout);
    offer = segment.offer();
  }
  try {
    static_cast<void>(Segment::attach(layout, offer));
    ADD_FAILURE() << "attached to what is gone";
  } catch (const SystemError& error) {
    const std::string text = error.what();
    const auto cause = text.find("a rank joins once");
    ASSERT_NE(cause, std::string::npos) << text;
    EXPECT_LT(cause, text.find("/proc (one container")) << text;
  }
}

TEST(Segment, AFailureKeepsItsTypeAndMessageHoweverManyRanksItNames) {
  const std::string text =
      "all_reduce #5 on rank 0 (n1): Timed out waiting: " + std::string(1500, 'x');
  for (const int ranks : {1, 600, 1000, 5000}) {
    Segment segment = Segment::create(small_layout());
    std::vector<int> missing(static_cast<std::size_t>(ranks));
    std::iota(missing.begin(), missing.end(), 1);
    segment.fail(std::make_exception_ptr(TimeoutError(text, missing)));
    const auto error = segment.failure();
    EXPECT_TRUE(test::is<TimeoutError>(error)) << ranks << ": " << test::text_of(error);
    EXPECT_EQ(test::text_of(error), text) << ranks;
  }
}

}  // namespace
}  // namespace chainmail::ops::shm
