// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that hosts get before ranks start: what travels, the agent's end, the launcher's end, and
// jobs on this machine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "launcher/files/agent_folders.h"
#include "launcher/job/options.h"
#include "launcher/staging/preload_sender.h"
#include "launcher/staging/preload_store.h"
#include "tests/launcher/jobs/run_launcher.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PreloadedFile file_of(const std::string& name, const std::string& content, std::uint32_t mode) {
  return {name, content.size(), mode, internal::hash64(content)};
}

TEST(PreloadListTest, IsReadAsItWasWritten) {
  const std::vector<PreloadedFile> files = {{"a", 1, 0755, 7}, {"b c", 0, 0600, 0}};
  EXPECT_EQ(decode_preload_list(encode_preload_list(files).substr(1)), files);
}

TEST(PreloadListTest, RefusesWhatCannotBe) {
  const auto refuses = [](const std::vector<PreloadedFile>& files) {
    EXPECT_THROW((void)decode_preload_list(encode_preload_list(files).substr(1)), SystemError);
  };
  for (const char* name : {"", ".", "..", "a/b", "/a"}) refuses({{name, 1, 0755, 0}});
  refuses({{std::string(256, 'a'), 1, 0755, 0}});
  refuses({{"a", 1, 0755, 0}, {"a", 1, 0755, 0}});
  refuses({{"a", std::uint64_t{1} << 60U, 0755, 0}});
  refuses({{"a", 1, 04755, 0}});
  EXPECT_THROW((void)decode_preload_list(std::string(4, '\xff')), SystemError);
}

class PreloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "preload_test.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
  }
  PreloadStore::Send remember() {
    return [this](const std::string& body) { answers_.push_back(body); };
  }
  // Of the last answer.
  PreloadOp op() const { return static_cast<PreloadOp>(answers_.back().front()); }
  std::string text() const { return answers_.back().substr(5); }
  static std::string content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string write(const std::string& name, const std::string& content, mode_t mode = 0644) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  std::vector<std::string> job_folders() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.find(".job.") != std::string::npos) found.push_back(name);
    }
    return found;
  }

  std::string folder_;
  std::string before_;
  std::vector<std::string> answers_;
};

TEST_F(PreloadTest, TheStoreKeepsBytesAndModes) {
  const std::string large(kPreloadPieceBytes + 5, 'x');
  {
    PreloadStore store("chainmail-m", remember());
    store.handle(encode_preload_list(
        {file_of("empty", "", 0640), file_of("large", large, 0711), file_of("last", "", 0600)}));
    store.handle(encode_preload(PreloadOp::kPiece, large.substr(0, kPreloadPieceBytes)));
    EXPECT_EQ(op(), PreloadOp::kTaken);
    EXPECT_EQ(store.folder(), "");
    store.handle(encode_preload(PreloadOp::kPiece, large.substr(kPreloadPieceBytes)));
    EXPECT_EQ(op(), PreloadOp::kStored);
    EXPECT_EQ(text(), store.folder());
    EXPECT_THAT(store.folder(), StartsWith(folder_ + "/chainmail-m.job."));
    EXPECT_EQ(content_of(store.folder() + "/large"), large);
    const auto mode = [&](const std::string& name) {
      return static_cast<unsigned>(fs::status(store.folder() + name).permissions());
    };
    EXPECT_EQ(mode("/large"), 0711U);
    EXPECT_EQ(mode("/empty"), 0640U);
    EXPECT_EQ(mode(""), 0700U);
  }
  EXPECT_TRUE(job_folders().empty());
}

TEST_F(PreloadTest, TheStoreTellsOfOtherContent) {
  PreloadStore store("chainmail-m", remember());
  store.handle(encode_preload_list({file_of("a", "right", 0600)}));
  store.handle(encode_preload(PreloadOp::kPiece, "wrong"));
  EXPECT_EQ(op(), PreloadOp::kFailed);
  EXPECT_THAT(text(), HasSubstr("a arrived with another content"));
}

TEST_F(PreloadTest, TheStoreSaysHowMuchRoomThereIs) {
  PreloadStore store("chainmail-m", remember());
  store.handle(encode_preload_list({{"a", std::uint64_t{1} << 49U, 0600, 0}}));
  EXPECT_EQ(op(), PreloadOp::kFailed);
  EXPECT_THAT(text(),
              HasSubstr("no folder takes the 512.0 TiB of files to preload: " + folder_ + " has "));
  EXPECT_TRUE(job_folders().empty());
}

TEST_F(PreloadTest, TheStoreUsesNoFolderThatOthersCouldReplace) {
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  {
    PreloadStore store("chainmail-m", remember());
    store.handle(encode_preload_list({file_of("a", "", 0700)}));
    EXPECT_EQ(op(), PreloadOp::kStored);
    EXPECT_THAT(store.folder(), StartsWith("/tmp/chainmail-m.job."));
  }
  PreloadStore store("chainmail-m", remember());
  store.handle(encode_preload_list({{"a", std::uint64_t{1} << 49U, 0600, 0}}));
  EXPECT_EQ(op(), PreloadOp::kFailed);
  EXPECT_THAT(text(), HasSubstr(folder_ + " is not to be trusted (everybody may write to " +
                                folder_ + " (mode 0777)), /tmp has "));
  setenv("TMPDIR", "tmp", 1);
  PreloadStore relative("chainmail-m", remember());
  relative.handle(encode_preload_list({{"a", std::uint64_t{1} << 49U, 0600, 0}}));
  EXPECT_THAT(text(),
              HasSubstr("tmp is not to be trusted ('tmp' is not an absolute path), /tmp has "));
}

TEST_F(PreloadTest, TheStoreRefusesNonsense) {
  PreloadStore store("chainmail-m", remember());
  EXPECT_THROW(store.handle(encode_preload(PreloadOp::kPiece, "early")), SystemError);
  store.handle(encode_preload_list({file_of("a", "12", 0600)}));
  EXPECT_THROW(store.handle(encode_preload(PreloadOp::kPiece, "123")), SystemError);
  EXPECT_THROW(store.handle(encode_preload(PreloadOp::kPiece, "")), SystemError);
  EXPECT_THROW(store.handle(encode_preload_list({})), SystemError);
  EXPECT_THROW(store.handle(encode_preload(PreloadOp::kStored, "")), SystemError);
}

TEST_F(PreloadTest, WhatAnAgentLeavesIsFoundByItsMarker) {
  for (const char* name : {"chainmail-a.job.123456", "chainmail-b.job.123456"}) {
    fs::create_directory(folder_ + "/" + name);
  }
  remove_agent_folders({"chainmail-a"});
  EXPECT_EQ(job_folders(), std::vector<std::string>{"chainmail-b.job.123456"});
}

TEST_F(PreloadTest, TheSenderWaitsForWhatIsUnderWay) {
  PreloadSource source;
  const std::string content(6 * kPreloadPieceBytes, 'x');
  const std::size_t file = source.add("--preload", write("a", content, 0755), "a", true);
  PreloadStore store("chainmail-m", remember());
  std::vector<std::string> sent;
  std::vector<std::uint32_t> stored;
  PreloadSender sender(source, 2,
                       {[&](std::uint32_t, std::string body) { sent.push_back(std::move(body)); },
                        [&](std::uint32_t node) { stored.push_back(node); },
                        [](std::uint32_t, const std::string& why) { ADD_FAILURE() << why; }});
  sender.send(1, {file});
  EXPECT_EQ(sent.size(), 5U);  // the list and four pieces
  EXPECT_THROW(sender.handle(0, encode_preload(PreloadOp::kTaken)), SystemError);
  std::size_t heard = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    store.handle(std::string(sent[i]));
    for (; heard < answers_.size(); ++heard) sender.handle(1, std::string(answers_[heard]));
  }
  EXPECT_EQ(sent.size(), 7U);
  EXPECT_EQ(stored, std::vector<std::uint32_t>{1});
  EXPECT_EQ(content_of(sender.folder_on(1) + "/a"), content);
}

TEST_F(PreloadTest, TheSourceSaysWhatItCannotCopy) {
  PreloadSource source;
  const auto refusal = [&](const std::string& path, bool is_program) -> std::string {
    try {
      (void)source.add("--preload", path, fs::path(path).filename(), is_program);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(folder_, false), HasSubstr("is a folder"));
  EXPECT_THAT(refusal(folder_ + "/missing", false), HasSubstr("No such file"));
  EXPECT_THAT(refusal("/dev/null", false), HasSubstr("is a device"));
  EXPECT_THAT(refusal(write("text", "a"), true), HasSubstr("is not executable"));
  EXPECT_EQ(refusal(write("a", "a"), false), "");
  EXPECT_EQ(refusal(folder_ + "/./a", false), "") << "the same file";
  fs::create_directory(folder_ + "/sub");
  EXPECT_THAT(refusal(write("sub/a", "b"), false), HasSubstr("has the same name as"));
  EXPECT_EQ(source.files().size(), 1U);
}

TEST_F(PreloadTest, RanksRunTheCopy) {
  const std::string program =
      write("program", "#!/bin/sh\necho \"$0\"; cat \"$CHAINMAIL_PRELOAD_DIR/data\"\n", 0700);
  const std::string data = write("data", "content\n");
  const Result result =
      run_launcher({"-n", "1", "--wdir", "/", "--preload", "--preload-files", data, program});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith(folder_ + "/chainmail-"));
  EXPECT_THAT(result.out, HasSubstr("/program"));
  EXPECT_THAT(result.out, HasSubstr("content"));
  EXPECT_TRUE(job_folders().empty());
}

TEST_F(PreloadTest, RanksRunNoCopyThatOthersCouldReplace) {
  const std::string program = write("program", "#!/bin/sh\necho \"$0\"\n", 0700);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  const Result result = run_launcher({"-n", "1", "--wdir", "/", "--preload", program});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("/tmp/chainmail-"));
}

TEST_F(PreloadTest, RanksOfARestartGetCopiesToo) {
  const std::string program =
      write("program", "#!/bin/sh\n[ $CHAINMAIL_GENERATION = 1 ] && [ -x \"$0\" ]\n", 0700);
  const Result result = run_launcher({"-n", "1", "--max-restarts", "1", "--preload", program});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(job_folders().empty());
}

TEST_F(PreloadTest, BadUsageStartsNothing) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const Result result = run_launcher(arguments);
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  EXPECT_THAT(refusal({"-n", "1", "--preload", "/no/such/program"}),
              HasSubstr("--preload: /no/such/program cannot be read: No such file"));
  EXPECT_THAT(refusal({"-n", "1", "--preload", "no-such-program"}), HasSubstr("is not in PATH"));
  EXPECT_THAT(refusal({"-n", "1", "--preload-files", folder_, "true"}),
              HasSubstr("--preload-files: " + folder_ + " is a folder"));
}

}  // namespace
}  // namespace chainmail::launch
