// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that grow, are replaced and cut while they are read.

#include "launcher/jobs/commands/files/growing_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/unique_fd.h"
#include "tests/launcher/jobs/folder/scratch_folder.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

class GrowingFileTest : public ::testing::Test {
 protected:
  void append(const std::string& text) const {
    std::ofstream(scratch_.at("file"), std::ios::app | std::ios::binary) << text;
  }
  static std::string all_of(GrowingFile& file) {
    std::string text;
    while (true) {
      const std::string_view piece = file.read();
      if (piece.empty()) return text;
      text += piece;
    }
  }
  const ScratchFolder scratch_;
};

TEST_F(GrowingFileTest, ComesLateAndGrows) {
  GrowingFile file({scratch_.at("nowhere/file"), scratch_.at("file")});
  EXPECT_EQ(all_of(file), "");
  EXPECT_FALSE(file.was_there());
  append("a");
  EXPECT_EQ(all_of(file), "a");
  EXPECT_EQ(all_of(file), "");
  append(std::string(200'000, 'b'));
  EXPECT_EQ(all_of(file).size(), 200'000U);
  file.look_anew();
  EXPECT_EQ(all_of(file), "");
  append("c");
  file.look_anew();
  EXPECT_EQ(all_of(file), "c");
}

TEST_F(GrowingFileTest, ReplacedAndCut) {
  append("first");
  GrowingFile file({scratch_.at("file")});
  EXPECT_EQ(all_of(file), "first");
  scratch_.write("next", "second");
  append(" end");
  fs::rename(scratch_.at("next"), scratch_.at("file"));
  EXPECT_EQ(all_of(file), " endsecond");
  scratch_.write("file", "3");
  EXPECT_EQ(all_of(file), "3");
  fs::remove(scratch_.at("file"));
  EXPECT_EQ(all_of(file), "");
  scratch_.write("file", "fourth");
  EXPECT_EQ(all_of(file), "fourth");
  // While nobody looked.
  file.look_anew();
  scratch_.write("file", "5");
  EXPECT_EQ(all_of(file), "5");
}

TEST_F(GrowingFileTest, LastLines) {
  const auto last = [this](std::uint64_t lines) {
    GrowingFile file({scratch_.at("file")}, lines);
    return all_of(file);
  };
  scratch_.write("file", "");
  EXPECT_EQ(last(3), "");
  scratch_.write("file", "a\nb\n\nc");
  EXPECT_EQ(last(0), "");
  EXPECT_EQ(last(1), "c");
  EXPECT_EQ(last(2), "\nc");
  EXPECT_EQ(last(3), "b\n\nc");
  EXPECT_EQ(last(4), "a\nb\n\nc");
  EXPECT_EQ(last(5), "a\nb\n\nc");
  append("\n");
  EXPECT_EQ(last(1), "c\n");
  scratch_.write("file", "\n\n\n");
  EXPECT_EQ(last(2), "\n\n");
  // Around the blocks that it is searched in.
  for (const std::size_t size : {65534U, 65535U, 65536U, 65537U, 131072U}) {
    const std::string line = std::string(size, 'x') + "\n";
    scratch_.write("file", "a\n" + line);
    EXPECT_EQ(last(1), line) << size;
    EXPECT_EQ(last(2), "a\n" + line) << size;
  }
}

TEST_F(GrowingFileTest, RefusesWhatIsNoFile) {
  GrowingFile folder({scratch_.path()});
  EXPECT_THROW((void)folder.read(), SystemError);
  ASSERT_EQ(mkfifo(scratch_.at("pipe").c_str(), 0600), 0);
  GrowingFile pipe({scratch_.at("pipe")});
  EXPECT_THROW((void)pipe.read(), SystemError);
}

// Of a pipe that somebody has set to wait for nobody.
TEST(WriteOut, LosesNothing) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  internal::UniqueFd in(ends[0]);
  internal::UniqueFd out(ends[1]);
  const std::string text(1 << 20, 'x');
  std::thread writer([&] {
    write_out(out.get(), text, "a pipe");
    out.reset();
  });
  std::size_t read_bytes = 0;
  std::string block(4096, '\0');
  while (true) {
    const ssize_t count = read(in.get(), block.data(), block.size());
    if (count == 0) break;
    if (count > 0) read_bytes += static_cast<std::size_t>(count);
  }
  writer.join();
  EXPECT_EQ(read_bytes, text.size());
  const internal::UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_THROW(write_out(full.get(), "x", "a full disk"), SystemError);
}

}  // namespace
}  // namespace chainmail::launch
