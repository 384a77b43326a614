// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/wire_choice.h"

#include <gtest/gtest.h>

namespace chainmail::internal {
namespace {

using ops::WireFormat;

constexpr std::size_t kBytes = std::size_t{25} << 20;

/// Eight steps that compute for `computed` seconds, and whose exchange of 25 MiB takes `travelled`
/// as float32 where it is not hidden but for `hidden` seconds.
WireTimes steps_of(double computed, double travelled, double hidden) {
  const double waited = travelled > hidden ? travelled - hidden : 0;
  return {.steps = 8,
          .step = 8 * (computed + waited),
          .waited = 8 * waited,
          .travelled = 8 * travelled};
}

WireFormat choose(const WireTimes& times) {
  return choose_wire(times, kBytes, WireFormat::kNative);
}

TEST(WireChoice, ASlowLinkTakesIntegers) {
  EXPECT_EQ(choose(steps_of(0.022, 0.228, 0.02)), WireFormat::kInt8);  // 1 Gbit/s
  EXPECT_EQ(choose(steps_of(0.022, 2.23, 0.02)), WireFormat::kInt8);   // 100 Mbit/s
}

TEST(WireChoice, NothingIsRoundedForWhatIsHidden) {
  EXPECT_EQ(choose(steps_of(0.5, 0.228, 0.22)), WireFormat::kNative);
  EXPECT_EQ(choose(steps_of(0.5, 0.002, 0)), WireFormat::kNative);
  EXPECT_EQ(choose(steps_of(0.2, 0.228, 0.19)), WireFormat::kFloat16);  // half is hidden, too
}

TEST(WireChoice, ShortStepsOnFastLinksTakeWhatIsCheaper) {
  EXPECT_EQ(choose(steps_of(0.005, 0.009, 0)), WireFormat::kFloat16);  // 25 Gbit/s
  EXPECT_EQ(choose(steps_of(0.005, 0.0005, 0)), WireFormat::kNative);  // within a machine
}

// An interval that no step has ended in says nothing.
TEST(WireChoice, WithoutStepsNothingChanges) {
  EXPECT_EQ(choose_wire({}, kBytes, WireFormat::kInt8), WireFormat::kInt8);
}

// Once a link is fast again; what computing would hide is not known, so that it takes a wide
// margin.
TEST(WireChoice, GoesBackWhereThatIsNotLonger) {
  const WireTimes fast{.steps = 8, .step = 8 * 0.5, .waited = 8 * 0.001, .travelled = 8 * 0.001};
  EXPECT_EQ(choose_wire(fast, kBytes, WireFormat::kInt8), WireFormat::kNative);
  const WireTimes slow{.steps = 8, .step = 8 * 0.08, .waited = 8 * 0.058, .travelled = 8 * 0.058};
  EXPECT_EQ(choose_wire(slow, kBytes, WireFormat::kInt8), WireFormat::kInt8);
}

TEST(WireChoice, SaysWhatItHasSeen) {
  EXPECT_EQ(describe(steps_of(0.022, 0.228, 0.02), kBytes),
            "steps of 230 ms wait 208 ms for 26214400 bytes of gradients");
}

}  // namespace
}  // namespace chainmail::internal
