// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The processes of chainmail-checkpoint-bench that write a generation together.

#include "tools/bench/checkpoint/part_writers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "plugin/checkpoint/store/parts.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"

namespace chainmail::bench {
namespace {

using chainmail::testing::ScratchFolder;
using ::testing::HasSubstr;

TEST(PartWriters, WriteAWholeGeneration) {
  const ScratchFolder scratch;
  PartWriters writers(scratch.path(), 100'000, 3);
  for (const int iteration : {1, 2}) {
    EXPECT_GT(writers.save(iteration), 0);
    const internal::Generation newest = internal::list_generations(scratch.path()).at(0);
    EXPECT_EQ(newest.iteration, iteration);
    EXPECT_EQ(newest.manifest.value().files.size(), 4U);
    EXPECT_NO_THROW(internal::check_tiles_here(newest));
  }
}

// No process gets so much memory; none may go on as a second copy of the program.
TEST(PartWriters, OneThatFailsIsMissed) {
  const ScratchFolder scratch;
  PartWriters writers(scratch.path(), std::size_t{1} << 62, 2);
  try {
    (void)writers.save(1);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("part 0 was not written: its process has ended"));
  }
  EXPECT_TRUE(internal::list_generations(scratch.path()).empty());
}

}  // namespace
}  // namespace chainmail::bench
