// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that hosts get before ranks start, over agents that are no processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/controller/starting/file_staging.h"
#include "tests/launcher/controller/fake_agents.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using test::FakeJob;
using ::testing::ElementsAre;

class FileStagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "chainmail-staging.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream(folder_ / "data") << "bytes";
    fake_.say_hello(0);
    fake_.say_hello(1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  FileStaging staging(const Options& options) {
    return FileStaging(options, {OrderedProgram{"/", {"true"}, {}}}, "/nowhere/launcher",
                       fake_.job.agents,
                       {[this] { events_.emplace_back("stored"); },
                        [this](const std::string& cause) { events_.push_back(cause); }});
  }
  static internal::Frame answer(PreloadOp op, const std::string& text = "") {
    return make_frame(AgentMessage::kPreload, encode_preload(op, text));
  }

  FakeJob fake_{{1, 1}};
  fs::path folder_;
  std::vector<std::string> events_;
};

TEST_F(FileStagingTest, WithoutFilesNobodyWaits) {
  FileStaging none = staging({});
  EXPECT_FALSE(none.sends_first());
  StartOrder order;
  order.programs.resize(1);
  none.name_copies(0, order);
  EXPECT_TRUE(order.programs[0].variables.empty());
}

TEST_F(FileStagingTest, RanksWaitUntilEveryHostHasAllFiles) {
  Options options;
  options.preload_files = {folder_ / "data"};
  FileStaging files = staging(options);
  EXPECT_TRUE(files.sends_first());
  for (const std::uint32_t node : {0U, 1U}) {
    EXPECT_EQ(fake_.told(node).size(), 2U) << "the list and one piece";
    EXPECT_TRUE(files.sends_first());
    files.on_frame(node, answer(PreloadOp::kTaken));
    files.on_frame(node, answer(PreloadOp::kStored, "/there" + std::to_string(node)));
  }
  EXPECT_THAT(events_, ElementsAre("stored"));
  EXPECT_FALSE(files.sends_first());
  StartOrder order;
  order.programs.resize(1);
  files.name_copies(1, order);
  EXPECT_EQ(order.programs[0].variables["CHAINMAIL_PRELOAD_DIR"], "/there1");
}

TEST_F(FileStagingTest, AHostThatCannotTakeThemIsNamed) {
  Options options;
  options.preload_files = {folder_ / "data"};
  FileStaging files = staging(options);
  EXPECT_TRUE(files.sends_first());
  files.on_frame(1, answer(PreloadOp::kFailed, "no room"));
  EXPECT_THAT(events_, ElementsAre("host n1: no room"));
}

TEST_F(FileStagingTest, BadUsageSendsNothing) {
  Options options;
  options.preload_files = {folder_ / "missing"};
  EXPECT_THROW((void)staging(options), UsageError);
}

}  // namespace
}  // namespace chainmail::launch
