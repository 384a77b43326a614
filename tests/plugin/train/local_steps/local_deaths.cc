// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Trains with local steps until the rank that it is told kills itself: after it has sent a fragment
// and before that is used. The others print when and what they were told.
//
// usage: local_deaths RANK

#include <chainmail/chainmail.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include <unistd.h>

namespace {

constexpr std::int64_t kDeath = 21;  // steps: a fragment is sent after 20 and used after 23

double now() {
  // Of all processes of a machine.
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

[[noreturn]] void die() {
  std::printf("dies %.6f\n", now());
  std::fflush(stdout);
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

void train(const std::shared_ptr<chainmail::Communicator>& comm, int victim) {
  torch::nn::Linear model(300, 100);
  auto optimizer = chainmail::create_multi_node_optimizer(
      std::make_unique<torch::optim::SGD>(model->parameters(), 0.01), comm,
      {.model = model.ptr(), .local_steps = {{.steps = 4, .delay = 3}}});
  for (std::int64_t step = 1;; ++step) {
    optimizer->zero_grad();
    model->forward(torch::ones({8, 300})).square().mean().backward();
    optimizer->step();
    if (step == kDeath && comm->rank() == victim) die();
    // All have sent the fragment, so that those who hear of the death wait for it or compute.
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::signal(SIGTERM, SIG_IGN);  // the launcher ends the others, too
  const auto comm = chainmail::create_communicator("hierarchical");
  try {
    train(comm, std::atoi(argv[1]));
  } catch (const chainmail::Error& error) {
    std::printf("told %.6f rank %d: %s\n", now(), comm->rank(), error.what());
    std::fflush(stdout);
    std::_Exit(7);
  }
}
