// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sharded optimizers of types that are not torch's own, whose state has no known members.

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/train/sharding/sharded_training.h"

namespace chainmail {
namespace {

namespace optim = torch::optim;
using testing::CommPtr;
using ::testing::HasSubstr;
using testing::sliced;
using testing::Tensors;
using testing::Trained;

// To whoever looks at types it is not torch's.
class OwnSgd final : public optim::SGD {
 public:
  using SGD::SGD;
};

std::unique_ptr<optim::Optimizer> make_own_sgd(Tensors parameters) {
  return std::make_unique<OwnSgd>(std::move(parameters), optim::SGDOptions(0.1).momentum(0.9));
}

std::string save_alone(Trained& trained) {
  torch::serialize::OutputArchive archive;
  trained.optimizer->actual_optimizer().save(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

std::string error_of_saving(Trained& trained) {
  try {
    (void)save_alone(trained);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

const torch::Tensor& momentum_of(Trained& trained, std::size_t parameter) {
  const auto& states = trained.optimizer->actual_optimizer().state();
  return static_cast<optim::SGDParamState&>(
             *states.at(trained.parameters[parameter].unsafeGetTensorImpl()))
      .momentum_buffer();
}

TEST(ShardedOwnTypes, AreNotSavedAloneBeforeTheirStateIsPutTogether) {
  const std::vector<std::int64_t>& sizes = testing::kMixedSizes;
  for (const auto& nodes : testing::or_all_shapes({{2}, {3}, {2, 2}, {2, 1}})) {
    testing::with_communicator(nodes, "two_dimensional", {}, [&](const CommPtr& comm) {
      for (const Sharding shard : {Sharding::kNode, Sharding::kAll}) {
        Trained whole(comm, sizes, make_own_sgd, {});
        Trained parts(comm, sizes, make_own_sgd, sliced({}, shard));
        for (std::int64_t step = 0; step < 6; ++step) {
          if (step == 3) {
            EXPECT_THAT(error_of_saving(parts), HasSubstr("call gather_state()"));
            parts.optimizer->gather_state();
            EXPECT_EQ(error_of_saving(parts), "");
            for (std::size_t p = 0; p < sizes.size(); ++p) {
              EXPECT_TRUE(testing::same_bits(momentum_of(whole, p), momentum_of(parts, p))) << p;
            }
          }
          whole.step(step, comm->rank());
          parts.step(step, comm->rank());
        }
        EXPECT_THAT(error_of_saving(parts), HasSubstr("call gather_state()"));
        testing::expect_same(whole, parts, "of an own type");
      }
    });
  }
}

TEST(ShardedOwnTypes, AreNotSavedAloneWhereTheyAreElementwise) {
  testing::with_communicator({2}, "auto", {}, [](const CommPtr& comm) {
    Trained parts(comm, {9000}, make_own_sgd, sliced({.is_elementwise = true}));
    EXPECT_EQ(error_of_saving(parts), "");
    parts.step(0, comm->rank());
    EXPECT_THAT(error_of_saving(parts), HasSubstr("call gather_state()"));
    EXPECT_THROW(parts.optimizer->gather_state(), InvalidArgument);
    parts.step(1, comm->rank());
  });
}

// One rank owns the only parameter, and the others nothing.
TEST(ShardedOwnTypes, AllRanksRefuseStateThatCannotBeCut) {
  for (const auto& nodes : std::vector<std::vector<int>>{{2}, {3}, {2, 2}}) {
    const auto errors = testing::errors_with_communicator(nodes, "auto", [](const CommPtr& comm) {
      const testing::MakeOptimizer make = [](const Tensors& parameters) {
        auto own = make_own_sgd(parameters);
        parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
        own->step();
        return own;
      };
      Trained parts(comm, {50}, make, sliced({.is_elementwise = true}));
      parts.step(0, comm->rank());
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("has state of whole parameters"));
    }
  }
}

}  // namespace
}  // namespace chainmail
