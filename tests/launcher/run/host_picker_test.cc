// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/host_picker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Host> hosts(std::initializer_list<const char*> names) {
  std::vector<Host> all;
  for (const char* name : names) all.emplace_back().name = name;
  return all;
}

std::vector<std::string> names(const std::vector<Host>& hosts) {
  std::vector<std::string> all;
  for (const Host& host : hosts) all.push_back(host.name);
  return all;
}

TEST(HostPicker, TheFirstOnesAreTakenAndTheOthersAreSpares) {
  const auto chosen = HostPicker(2).from(hosts({"n1", "n2", "n3"}));
  EXPECT_THAT(names(chosen.hosts), ElementsAre("n1", "n2"));
  EXPECT_THAT(chosen.spares, ElementsAre("n3"));
  EXPECT_EQ(chosen.missing, 0u);
}

TEST(HostPicker, AllWithoutACount) {
  HostPicker choice(std::nullopt);
  choice.set_back("n1");
  EXPECT_THAT(names(choice.from(hosts({"n1", "n2"})).hosts), ElementsAre("n1", "n2"));
}

TEST(HostPicker, AHostThatWasLostComesLast) {
  HostPicker choice(2);
  choice.set_back("n1");
  EXPECT_THAT(names(choice.from(hosts({"n1", "n2", "n3"})).hosts), ElementsAre("n2", "n3"));
  choice.set_back("n3");
  // In the order of the source, so that ranks stay where they were.
  EXPECT_THAT(names(choice.from(hosts({"n1", "n2", "n3"})).hosts), ElementsAre("n1", "n2"));
  choice.set_back("n1");
  EXPECT_THAT(names(choice.from(hosts({"n1", "n2", "n3"})).hosts), ElementsAre("n2", "n3"));
  choice.forgive("n1");
  EXPECT_THAT(names(choice.from(hosts({"n1", "n2", "n3"})).hosts), ElementsAre("n1", "n2"));
}

TEST(HostPicker, SaysHowManyAreMissing) {
  HostPicker choice(3);
  choice.set_back("n1");
  const auto chosen = choice.from(hosts({"n1", "n2"}));
  EXPECT_THAT(names(chosen.hosts), ElementsAre("n1", "n2"));
  EXPECT_EQ(chosen.missing, 1u);
  EXPECT_THAT(chosen.spares, IsEmpty());
  EXPECT_EQ(choice.from({}).missing, 3u);
}

}  // namespace
}  // namespace chainmail::launch
