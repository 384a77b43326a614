// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A program that trains on CPUs has nothing of CUDA in its memory: its start would take three times
// as long.

#include <ATen/core/dispatch/Dispatcher.h>
#include <chainmail/backend.h>
#include <chainmail/chainmail.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace chainmail {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// File names of all that is mapped.
std::set<std::string> mapped_files() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.rfind('/');
    if (slash != std::string::npos) files.insert(line.substr(slash + 1));
  }
  return files;
}

std::set<std::string> mapped_cuda_files() {
  // libtorch_cpu of a wheel for CUDA needs these two itself.
  const std::regex torchs(R"(libcu(dart|pti)[-.].*)");
  const std::regex cuda(R"(.*(cuda|nccl|nvrtc|nvidia|nvToolsExt|nvshmem|libcu|libnv).*)");
  std::set<std::string> found;
  for (const std::string& file : mapped_files()) {
    if (std::regex_match(file, cuda) && !std::regex_match(file, torchs)) found.insert(file);
  }
  return found;
}

TEST(NothingOfCuda, IsLoadedByAProgramOnCpus) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds{30};
  const auto comm = create_communicator("hierarchical", options);
  torch::nn::Linear model(8, 4);
  auto optimizer = create_multi_node_optimizer(
      std::make_unique<torch::optim::SGD>(model->parameters(), 0.1), comm, {.model = &model});
  model->forward(torch::ones({2, 8})).sum().backward();
  optimizer->step();

  BackendOptions group_options;
  group_options.timeout = options.timeout;
  const auto group = make_process_group(group_options);
  std::vector<c10::IValue> arguments{torch::ones({5}), "sum", group->getGroupName()};
  c10::Dispatcher::singleton().findSchemaOrThrow("chainmail::all_reduce_", "").callBoxed(arguments);

  ASSERT_THAT(mapped_files(), Contains(HasSubstr("libtorch_cpu.so"))) << "the check sees nothing";
  EXPECT_THAT(mapped_cuda_files(), IsEmpty());
  comm->finalize();
}

}  // namespace
}  // namespace chainmail
