// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What travels from the environment of the launcher to the ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/job/environment.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;

TEST(ExportedEnvironment, PrefixesAndNamedVariables) {
  const Environment own = {{"CHAINMAIL_LOG", "info"},
                           {"OMP_NUM_THREADS", "3"},
                           {"HOME", "/h"},
                           {"LD_PRELOAD", "evil.so"},
                           {"CHAINMAIL_JOB_FD", "60"},
                           {"CHAINMAIL_NODE_ID", "n"},
                           {"NCCL_DEBUG", "INFO"},
                           {"MY", "1"}};
  std::vector<std::string> missing;
  const Environment out =
      exported_environment(own, {{"MY", {}}, {"SET", "2"}, {"ABSENT", {}}}, missing);
  EXPECT_EQ(out, (Environment{{"CHAINMAIL_LOG", "info"},
                              {"OMP_NUM_THREADS", "3"},
                              {"NCCL_DEBUG", "INFO"},
                              {"MY", "1"},
                              {"SET", "2"}}));
  EXPECT_THAT(missing, ElementsAre("ABSENT"));
}

}  // namespace
}  // namespace chainmail::launch
