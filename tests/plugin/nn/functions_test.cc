// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the differentiable collectives do when ranks do not do the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>

#include "tests/plugin/support/thread_world.h"

namespace chainmail {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

// Expects `Error` on every rank of {2, 1} and returns its texts.
template <typename Error>
std::vector<std::string> errors_of(const CommunicatorOptions& options,
                                   const std::function<void(const CommPtr&)>& body) {
  std::mutex mutex;
  std::vector<std::string> texts;
  testing::with_communicator({2, 1}, "hierarchical", options, [&](const CommPtr& comm) {
    try {
      body(comm);
      ADD_FAILURE() << "no error on rank " << comm->rank();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      texts.emplace_back(error.what());
    }
  });
  EXPECT_EQ(texts.size(), 3U);
  return texts;
}

TEST(Functions, DifferentShapesAreFoundOnAllRanks) {
  EXPECT_THAT(errors_of<MismatchError>({},
                                       [](const CommPtr& comm) {
                                         (void)functions::allreduce(
                                             comm, torch::ones({comm->rank() == 1 ? 3 : 2}));
                                       }),
              Each(HasSubstr("rank")));
}

TEST(Functions, DifferentTypesAreFoundOnAllRanks) {
  EXPECT_THAT(errors_of<MismatchError>({},
                                       [](const CommPtr& comm) {
                                         const auto dtype =
                                             comm->rank() == 2 ? torch::kDouble : torch::kFloat;
                                         (void)functions::allgather(comm, torch::ones({2}, dtype));
                                       }),
              Each(HasSubstr("rank")));
}

TEST(Functions, AnotherFunctionOnOneRankIsFound) {
  EXPECT_THAT(errors_of<MismatchError>({},
                                       [](const CommPtr& comm) {
                                         const auto x = torch::ones({64});
                                         if (comm->rank() == 0) {
                                           (void)functions::allgather(comm, x);
                                         } else {
                                           (void)functions::allreduce(comm, x);
                                         }
                                       }),
              Each(HasSubstr("rank")));
}

TEST(Functions, BackwardThatOneRankLeavesOutTimesOutOnTheOthers) {
  CommunicatorOptions options;
  options.timeout = 1s;
  testing::with_communicator({2, 1}, "hierarchical", options, [](const CommPtr& comm) {
    const auto x = torch::ones({2}, torch::requires_grad());
    const auto y = functions::allreduce(comm, x);
    if (comm->rank() == 1) {
      EXPECT_FALSE(x.grad().defined());
      return;
    }
    try {
      y.sum().backward();
      ADD_FAILURE() << "no error on rank " << comm->rank();
    } catch (const Error& error) {
      // The late rank by its number, or that it has left.
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
    EXPECT_FALSE(x.grad().defined());
  });
}

TEST(Functions, NeedACommunicator) {
  EXPECT_THROW((void)functions::allreduce(nullptr, torch::ones({2})), InvalidArgument);
  EXPECT_THROW((void)functions::allgather(nullptr, torch::ones({2})), InvalidArgument);
}

// torch leaves conjugates for later.
TEST(Functions, ConjugatesArriveAsTheyAre) {
  testing::with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const torch::Tensor z = torch::complex(torch::ones({2}), torch::ones({2})).conj();
    for (const torch::Tensor& got : functions::allgather(comm, z)) {
      EXPECT_TRUE(torch::equal(got, z));
    }
  });
}

TEST(Functions, TensorsThatCannotTravelAreRefused) {
  testing::with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    EXPECT_THROW((void)functions::allreduce(comm, torch::Tensor()), InvalidArgument);
    EXPECT_THROW((void)functions::allreduce(comm, torch::eye(3).to_sparse()), InvalidArgument);
    EXPECT_THROW((void)functions::allgather(comm, torch::ones(std::vector<std::int64_t>(15, 1))),
                 InvalidArgument);
  });
}

}  // namespace
}  // namespace chainmail
