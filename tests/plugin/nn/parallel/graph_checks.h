// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What tests of graphs that span ranks work with, where ranks are threads.

#pragma once

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chainmail/communicator.h>

#include "tests/plugin/support/gradient_check.h"
#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"

namespace chainmail::testing {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using CommPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<torch::Tensor>;

}  // namespace chainmail::testing
