// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What tests whose ranks are processes work with.

#pragma once

#include <ATen/Parallel.h>

#include <memory>

#include <chainmail/communicator.h>

namespace chainmail::testing {

/// That of the whole process; torch computes with one thread.
inline const std::shared_ptr<Communicator>& comm() {
  static const auto communicator = [] {
    at::set_num_threads(1);
    return create_communicator("hierarchical");
  }();
  return communicator;
}

}  // namespace chainmail::testing
