// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Local steps that cannot be: options, nodes that are not at the same step, ranks that end.

#include <barrier>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "plugin/train/local_steps/local_access.h"
#include "tests/plugin/train/local_steps/local_training.h"

namespace chainmail::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kFewSizes = {3, 40};

struct Refused {
  MultiNodeOptimizerOptions options;
  std::string why;
};

TEST(LocalStepsErrors, OptionsThatMakeNoSense) {
  const auto with = [](const LocalSteps& local) {
    return MultiNodeOptimizerOptions{.local_steps = local};
  };
  const std::vector<Refused> refused = {
      {with({.steps = 0}), ".steps is 0"},
      {with({.steps = -4}), ".steps is -4"},
      {with({.steps = 8, .fragments = 0}), ".fragments is 0"},
      {with({.steps = 8, .fragments = 3}), ".steps = 8 is no multiple of .fragments = 3"},
      {with({.steps = 8, .fragments = 4, .delay = 2}), "it may be 0 to 1"},
      {with({.steps = 8, .delay = 8}), "it may be 0 to 7"},
      {with({.steps = 8, .delay = -1}), ".delay is -1"},
      {with({.outer_lr = 0}), ".outer_lr is 0"},
      {with({.outer_lr = NAN}), ".outer_lr is nan"},
      {with({.outer_momentum = 1}), ".outer_momentum is 1"},
      {with({.outer_momentum = -0.5}), ".outer_momentum is -0.5"},
      {with({.start = -1}), ".start is -1"},
      {with({.merge = 1.5}), ".merge is 1.5"},
      {with({.steps = 100, .fragments = 50}), ".fragments is 50, more than there are elements"},
      {{.double_buffering = true, .local_steps = LocalSteps{}}, "with double_buffering"},
      {{.shard = Sharding::kNode, .local_steps = LocalSteps{}}, "with .shard"},
      {{.shard = Sharding::kAll, .local_steps = LocalSteps{}}, "with .shard"},
  };
  with_communicator({1, 1}, "hierarchical", {}, [&](const CommPtr& comm) {
    for (const Refused& one : refused) {
      try {
        Trained local(comm, kFewSizes, make_sgd, one.options);
        ADD_FAILURE() << "not refused: " << one.why;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("local_steps"), HasSubstr(one.why)));
      }
    }
    comm->barrier();  // the communicator can be used
  });
}

TEST(LocalStepsErrors, RanksWithOtherOptions) {
  const auto errors = errors_with_communicator({1, 1}, "hierarchical", [](const CommPtr& comm) {
    Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 8 + comm->rank()}}});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("local_steps = 8 steps"), HasSubstr("local_steps = 9 steps")));
  }
}

// Acceptance row A25. The exchange says which one it is, so that nodes that are not at the same
// step hear of it from its header.
TEST(LocalStepsErrors, ANodeThatIsAStepAhead) {
  const auto errors = errors_with_communicator({2, 2}, "hierarchical", [](const CommPtr& comm) {
    Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 8}}});
    for (std::int64_t step = 0; step < 3 + comm->inter_rank(); ++step) {
      local.step(step, comm->rank());
    }
    local.optimizer->flush();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("after local step 3"), HasSubstr("after local step 4")));
  }
}

TEST(LocalStepsErrors, ARankThatEndsBetweenSendAndUse) {
  std::vector<std::chrono::steady_clock::time_point> ends(4);
  const auto errors = errors_with_communicator({2, 2}, "hierarchical", [&](const CommPtr& comm) {
    try {
      Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 4, .delay = 3}}});
      for (std::int64_t step = 0; step < 100; ++step) {
        if (comm->rank() == 3 && step == 5) throw std::runtime_error("no more");
        local.step(step, comm->rank());
      }
    } catch (...) {
      ends[static_cast<std::size_t>(comm->rank())] = std::chrono::steady_clock::now();
      throw;
    }
  });
  EXPECT_EQ(errors[3], "no more");
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_LT(ends[rank] - ends[3], std::chrono::seconds(5)) << "not by the time limit of 20 s";
    EXPECT_THAT(errors[rank], HasSubstr("rank 3")) << "rank " << rank;
  }
}

// Of the three that a rank is in. Nobody goes before all have heard of it, so that it is not the
// end of the others' programs that they hear of.
TEST(LocalStepsErrors, TheEndOfOneGroupIsThatOfAll) {
  for (const bool is_of_node : {false, true}) {
    std::barrier<> all(4);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = errors_with_communicator({2, 2}, "hierarchical", [&](const CommPtr& comm) {
      Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 4, .delay = 3}}});
      std::exception_ptr error = std::make_exception_ptr(std::runtime_error("no error"));
      try {
        for (std::int64_t step = 0; step < 100; ++step) {
          if (comm->rank() == 3 && step == 5) {
            const auto node = internal::LocalAccess::stepping(*local.optimizer)->node();
            (is_of_node ? node : comm)->abort("no more");
          }
          local.step(step, comm->rank());
        }
      } catch (...) {
        error = std::current_exception();
      }
      all.arrive_and_wait();
      std::rethrow_exception(error);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("no more"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
        << "by the time limit of 20 s";
  }
}

// The others wait where nodes exchange fragments.
TEST(LocalStepsErrors, AModelThatChangesOnOneNode) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = errors_with_communicator({2, 2}, "hierarchical", [](const CommPtr& comm) {
    Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 8}}});
    for (std::int64_t step = 0; step < 20; ++step) {
      if (comm->inter_rank() == 1 && step == 5) local.parameters[0].requires_grad_(false);
      local.step(step, comm->rank());
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("fragment 0 of 1"), HasSubstr(" frozen'")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
      << "by the time limit of 20 s";
}

// Which those of one node find among themselves, while the others have nothing to find.
TEST(LocalStepsErrors, AModelThatDiffersInsideANode) {
  std::barrier<> all(4);
  const auto errors = errors_with_communicator({2, 2}, "hierarchical", [&](const CommPtr& comm) {
    Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 8}}});
    std::exception_ptr error = std::make_exception_ptr(std::runtime_error("no error"));
    try {
      for (std::int64_t step = 0; step < 20; ++step) {
        if (step == 5) local.parameters[comm->rank() == 3 ? 1 : 0].requires_grad_(false);
        local.step(step, comm->rank());
      }
    } catch (...) {
      error = std::current_exception();
    }
    all.arrive_and_wait();
    std::rethrow_exception(error);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("frozen"), HasSubstr("rank 2 on"), HasSubstr("rank 3 on")));
  }
}

// Bits that differ without a word.
TEST(LocalStepsErrors, NodesThatDifferAreFound) {
  const auto errors = errors_with_communicator({2, 2}, "hierarchical", [](const CommPtr& comm) {
    Trained local(comm, kFewSizes, make_sgd, {.local_steps = {{.steps = 1}}});
    if (comm->rank() == 3) {
      const auto pieces = internal::LocalAccess::stepping(*local.optimizer)->pieces();
      pieces.front().common.add_(1);
    }
    for (std::int64_t step = 0; step < 99; ++step) local.step(step, comm->rank());
    EXPECT_NO_THROW(comm->barrier());
    local.step(99, comm->rank());
    comm->barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("differ in what they have in common"), HasSubstr("node 1")));
  }
}

TEST(LocalStepsErrors, AParameterThatCannotBeCut) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto gaps = torch::zeros({4, 4}).slice(1, 0, 2).requires_grad_();
    try {
      (void)create_multi_node_optimizer(make_sgd({gaps}), comm, {.local_steps = LocalSteps{}});
      ADD_FAILURE() << "not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("param_groups[0][0]"), HasSubstr("contiguous()")));
    }
  });
}

TEST(LocalStepsErrors, ParametersThatShareMemoryOrChangeTheirOrder) {
  with_communicator({1, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto whole = torch::zeros({40});
    const Tensors tied = {whole.slice(0, 0, 30).requires_grad_(),
                          whole.slice(0, 20, 40).requires_grad_()};
    EXPECT_THAT(
        [&] {
          (void)create_multi_node_optimizer(make_sgd(tied), comm, {.local_steps = LocalSteps{}});
        },
        ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("have memory in common")));
  });
  std::barrier<> both(2);
  const auto errors = errors_with_communicator({1, 1}, "hierarchical", [&](const CommPtr& comm) {
    const auto matrix = torch::zeros({6, 8}).requires_grad_();
    const auto optimizer =
        create_multi_node_optimizer(make_sgd({matrix}), comm, {.local_steps = {{.steps = 1}}});
    matrix.sum().backward();
    optimizer->step();
    matrix.set_data(torch::zeros({8, 6}).t());
    matrix.sum().backward();
    std::exception_ptr error;
    try {
      optimizer->step();
    } catch (...) {
      error = std::current_exception();
    }
    both.arrive_and_wait();  // one's end would be the other's error
    if (error) std::rethrow_exception(error);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("in another order"), HasSubstr("synchronize()")));
  }
}

}  // namespace
}  // namespace chainmail::testing
