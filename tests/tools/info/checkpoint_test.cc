// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/info/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/one_rank_save.h"

namespace chainmail::info {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code;
  std::string text;
};

Answer ask(const std::string& folder) {
  std::ostringstream out;
  const int code = check_checkpoints(folder, out);
  return {code, out.str()};
}

void append(const std::string& path) { std::ofstream(path, std::ios::app) << "x"; }

void overwrite_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
}

class CheckpointInfo : public ::testing::Test {
 protected:
  CheckpointInfo() {
    for (const int iteration : {10, 20}) testing::save(*files_, run_, iteration, iteration);
  }
  std::string file(int iteration, const std::string& name) const {
    return run_ + '/' + internal::generation_name(iteration) + '/' + name;
  }

  testing::ScratchFolder scratch_;
  std::string run_ = scratch_.path() + "/run";
  std::shared_ptr<internal::FileSystem> files_ = internal::posix_file_system();
};

TEST_F(CheckpointInfo, ListsWhatIsWhole) {
  for (const std::string& folder : {run_, scratch_.path()}) {
    const Answer answer = ask(folder);
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.text, HasSubstr("iteration 20: whole, by 1 ranks, 1 files of "));
    EXPECT_THAT(answer.text, HasSubstr("iteration 10: whole"));
    EXPECT_THAT(answer.text, HasSubstr("resumes at iteration 20\n"));
  }
}

TEST_F(CheckpointInfo, NamesTheDamagedTensor) {
  overwrite_last_byte(file(20, "set-0.bin"));
  const Answer answer = ask(run_);
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.text, HasSubstr("iteration 20: damaged"));
  EXPECT_THAT(answer.text, HasSubstr("set-0.bin: 'model/b' differs from its digest"));
  EXPECT_THAT(answer.text, HasSubstr("resumes at iteration 10\n"));
}

TEST_F(CheckpointInfo, CountsParts) {
  testing::save(*files_, run_, 30, 30, 3, 2);
  EXPECT_THAT(ask(run_).text, HasSubstr("iteration 30: whole, by 2 ranks, 3 files of "));
  overwrite_last_byte(file(30, "set-0.part-1.bin"));
  EXPECT_THAT(ask(run_).text,
              HasSubstr("set-0.part-1.bin: 'optimizer/sum[100:200)' differs from its digest"));
  std::filesystem::remove(file(30, "set-0.part-1.bin"));
  const Answer answer = ask(run_);
  EXPECT_THAT(answer.text, HasSubstr("set-0.part-1.bin: cannot be opened"));
  EXPECT_THAT(answer.text, HasSubstr("resumes at iteration 20\n"));
}

TEST_F(CheckpointInfo, EndsWithOneWhenNothingIsWhole) {
  std::filesystem::remove(file(20, "set-0.bin"));
  append(file(10, internal::kManifestName));
  const Answer answer = ask(run_);
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.text, HasSubstr("set-0.bin: cannot be opened: No such file"));
  EXPECT_THAT(answer.text, HasSubstr("manifest: differs from its digest"));
  EXPECT_THAT(answer.text, HasSubstr("nothing to resume from"));
}

TEST_F(CheckpointInfo, EveryRunCounts) {
  testing::save(*files_, scratch_.path() + "/another", 5, 1);
  EXPECT_EQ(ask(scratch_.path()).code, 0);
  overwrite_last_byte(scratch_.path() + "/another/" + internal::generation_name(5) + "/set-0.bin");
  EXPECT_EQ(ask(scratch_.path()).code, 1);
}

TEST_F(CheckpointInfo, AFolderWithoutCheckpointsIsNoSuccess) {
  std::filesystem::remove_all(run_);
  EXPECT_EQ(ask(scratch_.path()).code, 1);
  EXPECT_THAT(ask(scratch_.path()).text, HasSubstr("no checkpoints"));
  EXPECT_EQ(ask(run_).code, 1);
  EXPECT_THAT(ask(run_).text, HasSubstr("no such folder"));
}

}  // namespace
}  // namespace chainmail::info
