// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Two jobs that save in one folder: each is told what it has found of the other, and neither
// removes what the other is writing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/store/generations.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/trainee.h"

namespace chainmail::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CheckpointOptions two_jobs_in(const ScratchFolder& scratch) {
  return {.path = scratch.path(), .keep = 2};
}

void save_and_wait(MultiNodeCheckpointer& checkpointer, std::int64_t iteration) {
  checkpointer.save(iteration);
  checkpointer.wait();
}

// As a job of one rank.
void save_by_another_job(const ScratchFolder& scratch, std::int64_t iteration) {
  on_ranks({1}, [&](const Comm& comm) {
    std::int64_t value = 7;
    const auto other = create_multi_node_checkpointer("run", comm, two_jobs_in(scratch));
    other->add("value", &value);
    save_and_wait(*other, iteration);
  });
}

std::string path_of_generation(const ScratchFolder& scratch, std::int64_t iteration,
                               const std::string& ending = "") {
  return scratch.path() + "/run/" + internal::generation_name(iteration) + ending;
}

// Expects that a save is refused because of `found`.
void expect_told(MultiNodeCheckpointer& checkpointer, std::int64_t iteration,
                 const std::string& found) {
  try {
    save_and_wait(checkpointer, iteration);
    ADD_FAILURE() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(found), HasSubstr("by another job"),
                                    HasSubstr("a path of its own")));
  }
}

TEST(TwoJobs, WhatAnotherOneHasWrittenIsTold) {
  const ScratchFolder scratch;
  on_ranks({2, 1}, [&](const Comm& comm) {
    std::int64_t value = comm->rank();
    const auto checkpointer = create_multi_node_checkpointer("run", comm, two_jobs_in(scratch));
    checkpointer->add("value", &value);
    save_and_wait(*checkpointer, 10);
    save_and_wait(*checkpointer, 20);
    if (comm->rank() == 0) save_by_another_job(scratch, 5);
    comm->barrier();
    expect_told(*checkpointer, 30, path_of_generation(scratch, 5) + " was written");
    if (comm->rank() == 0) {
      EXPECT_TRUE(std::filesystem::exists(path_of_generation(scratch, 5)));
      EXPECT_TRUE(std::filesystem::exists(path_of_generation(scratch, 10)));
      EXPECT_FALSE(std::filesystem::exists(path_of_generation(scratch, 30, ".tmp")));
    }
    comm->barrier();
    // Told once for each.
    save_and_wait(*checkpointer, 30);
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(30));
  });
}

TEST(TwoJobs, WhatIsThereAtFirstOrWasLoadedIsOfEarlierOnes) {
  const ScratchFolder scratch;
  save_by_another_job(scratch, 10);
  on_ranks({2}, [&](const Comm& comm) {
    std::int64_t value = comm->rank();
    const auto checkpointer = create_multi_node_checkpointer("run", comm, two_jobs_in(scratch));
    checkpointer->add("value", &value);
    save_and_wait(*checkpointer, 20);
    if (comm->rank() == 0) save_by_another_job(scratch, 40);
    comm->barrier();
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(40));
    save_and_wait(*checkpointer, 50);
  });
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(TwoJobs, WhatAnotherOneIsWritingIsToldAndStays) {
  const ScratchFolder scratch;
  const std::string leftover = path_of_generation(scratch, 3, ".tmp");
  const std::string writing = path_of_generation(scratch, 4, ".tmp");
  write_file(leftover + "/set-0.bin", "half");
  write_file(writing + "/set-0.bin", "half");
  on_ranks({1}, [&](const Comm& comm) {
    std::int64_t value = 1;
    const auto checkpointer = create_multi_node_checkpointer("run", comm, two_jobs_in(scratch));
    checkpointer->add("value", &value);
    write_file(writing + "/set-0.bin", "half and more");
    expect_told(*checkpointer, 10, writing + " is being written");
    EXPECT_TRUE(std::filesystem::exists(writing + "/set-0.bin"));
    write_file(path_of_generation(scratch, 10, ".tmp") + "/set-0.bin", "half");
    expect_told(*checkpointer, 10, path_of_generation(scratch, 10, ".tmp") + " is being written");
    EXPECT_TRUE(std::filesystem::exists(path_of_generation(scratch, 10, ".tmp") + "/set-0.bin"));
    // Nobody has written there since: what is left of a crash.
    save_and_wait(*checkpointer, 10);
    EXPECT_FALSE(std::filesystem::exists(leftover));
    EXPECT_FALSE(std::filesystem::exists(writing));
    EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(10));
  });
}

// Calls `meanwhile` before it makes the manifest of a save.
class BesideManifest final : public internal::FileSystem {
 public:
  explicit BesideManifest(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}

  internal::UniqueFd create(const std::string& path) override {
    if (path.ends_with(internal::kManifestName)) meanwhile_();
    return real_->create(path);
  }
  void write(const internal::UniqueFd& file, std::uint64_t offset, std::span<const std::byte> bytes,
             const std::string& path) override {
    real_->write(file, offset, bytes, path);
  }
  void sync(const internal::UniqueFd& file, const std::string& path) override {
    real_->sync(file, path);
  }
  void close(internal::UniqueFd file, const std::string& path) override {
    real_->close(std::move(file), path);
  }
  void rename(const std::string& from, const std::string& to) override { real_->rename(from, to); }
  void sync_folder(const std::string& path) override { real_->sync_folder(path); }
  void make_folder(const std::string& path) override { real_->make_folder(path); }
  void remove(const std::string& path) override { real_->remove(path); }

 private:
  std::shared_ptr<internal::FileSystem> real_ = internal::posix_file_system();
  std::function<void()> meanwhile_;
};

// The other one has its checkpointer from before; a save of the same iteration comes in between.
TEST(TwoJobs, ASaveInTheMiddleOfAnotherOnesIsTheOneThatIsRefused) {
  const ScratchFolder scratch;
  on_ranks({1}, [&](const Comm& comm) {
    on_ranks({1}, [&](const Comm& other_comm) {
      std::int64_t value = 7;
      const auto other = create_multi_node_checkpointer("run", other_comm, two_jobs_in(scratch));
      other->add("value", &value);
      const auto files = std::make_shared<BesideManifest>([&] {
        expect_told(*other, 20, path_of_generation(scratch, 20, ".tmp") + " is being written");
      });
      std::int64_t own_value = 8;
      CheckpointOptions options = two_jobs_in(scratch);
      options.is_async = false;
      const auto checkpointer = internal::make_checkpointer(comm, "run", {}, options, files);
      checkpointer->add("value", &own_value);
      save_and_wait(*checkpointer, 20);
      own_value = 0;
      EXPECT_EQ(checkpointer->maybe_load(), std::optional<std::int64_t>(20));
      EXPECT_EQ(own_value, 8);
    });
  });
}

}  // namespace
}  // namespace chainmail::testing
