// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Process groups over the ranks of the job that this test program belongs to.

#pragma once

#include <chainmail/backend.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "plugin/job/environment/job_info.h"

namespace chainmail::internal {

inline const JobInfo& job() {
  static const JobInfo info = read_job_info(process_environment());
  return info;
}

/// A group of all ranks, named after the running test.
inline c10::intrusive_ptr<c10d::ProcessGroup> make_group(BackendOptions options = {}) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (options.group_name == "chainmail") {
    options.group_name = std::string(test->test_suite_name()) + "." + test->name();
  }
  if (options.timeout == std::chrono::minutes{10}) options.timeout = std::chrono::seconds{30};
  return make_process_group(make_job_store(std::chrono::seconds{30}), job().rank, job().size,
                            options);
}

/// With a group of all ranks, which all of them have joined.
class GroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    group_ = make_group();
    group_->barrier()->wait();
    backend_ = group_->getBackend(c10::kCPU);
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace chainmail::internal
