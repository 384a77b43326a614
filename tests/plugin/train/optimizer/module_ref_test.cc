// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Models in every form in which a program may hold them. TorchScript's are in script_module_test.

#include <gtest/gtest.h>

#include <torch/torch.h>

#include <chainmail/optimizer.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/module_ref.h>

#include "tests/plugin/support/thread_world.h"
#include "tests/plugin/support/weights.h"

namespace chainmail {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using CommPtr = std::shared_ptr<Communicator>;

TEST(MultiNodeOptimizer, TakesModelsInEveryForm) {
  for (const int ranks : {1, 2}) {
    testing::with_communicator({ranks}, "flat", {}, [](const CommPtr& comm) {
      const auto sgd = [](nn::Module& module) {
        return std::make_unique<optim::SGD>(module.parameters(), 0.1);
      };
      nn::Linear holder(2, 2);
      const auto shared = std::make_shared<nn::LinearImpl>(2, 2);
      nn::LinearImpl on_stack(2, 2);
      nn::Sequential sequence(nn::Linear(2, 3), nn::ReLU());
      const std::vector<nn::Module*> modules = {holder.get(), shared.get(), &on_stack,
                                                sequence.get()};
      const auto expect_equal_after = [&](const auto& broadcast) {
        for (nn::Module* module : modules) testing::fill(*module, comm->rank());
        broadcast();
        for (nn::Module* module : modules) {
          EXPECT_NO_THROW(verify_equal(*comm, module->parameters()));
        }
      };
      expect_equal_after([&] {  // as they are
        (void)create_multi_node_optimizer(sgd(*holder), comm, {.model = holder});
        (void)create_multi_node_optimizer(sgd(*shared), comm, {.model = *shared});
        (void)create_multi_node_optimizer(sgd(on_stack), comm, {.model = on_stack});
        (void)create_multi_node_optimizer(sgd(*sequence), comm, {.model = sequence});
      });
      expect_equal_after([&] {  // by pointer
        (void)create_multi_node_optimizer(sgd(*holder), comm, {.model = &holder});
        (void)create_multi_node_optimizer(sgd(*shared), comm, {.model = shared});
        (void)create_multi_node_optimizer(sgd(on_stack), comm, {.model = &on_stack});
        (void)create_multi_node_optimizer(sgd(*sequence), comm, {.model = sequence.get()});
      });
      EXPECT_FALSE(ModuleRef(nn::Linear(nullptr)));
      EXPECT_FALSE(ModuleRef(static_cast<nn::Linear*>(nullptr)));
    });
  }
}

}  // namespace
}  // namespace chainmail
