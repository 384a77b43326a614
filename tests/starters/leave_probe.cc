// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A program whose last rank leaves, with the exit code of its second argument, while the others
// wait for it. The first argument says when:
//   start    before it makes a communicator
//   made     before the first collective of the communicator
//   abrupt   the same, by _exit
//   split    before the first collective of a second communicator
//   message  before it sends what the others receive
//   done     after all that the others need of it: they go on without, and end with 0
// What a rank is told it prints, with the time, and ends with 7.

#include <chainmail/communicator.h>
#include <chainmail/error.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <ATen/ATen.h>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

[[noreturn]] void leave(std::string_view when, int code) {
  std::printf("left at %.3f\n", now());
  std::fflush(stdout);
  if (when == "abrupt") ::_exit(code);
  std::exit(code);
}

// What the ranks that stay do; the other one does what they need of it, and no more.
void work(std::string_view when, bool leaves, int code) {
  const auto comm = chainmail::create_communicator("hierarchical");
  const bool has_second = when == "split" || when == "done";
  const int last = comm->size() - 1;
  if (has_second) {
    comm->barrier();
    const auto second = comm->split(when == "done" && leaves ? 1 : 0, comm->rank());
    if (leaves) return;
    if (when == "done") {
      std::this_thread::sleep_for(std::chrono::milliseconds{700});
    }
    at::Tensor sum = at::ones({3});
    second->allreduce({sum});
    return;
  }
  if (leaves && when == "made") return;
  if (leaves) leave(when, code);
  if (when == "message") {
    static_cast<void>(comm->recv(last));
  } else {
    comm->barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view when = argc > 1 ? argv[1] : "";
  const int code = argc > 2 ? std::atoi(argv[2]) : 0;
  const auto number = [](const char* ours, const char* mpis) {
    const char* text = std::getenv(ours);
    return std::atoi(text != nullptr ? text : std::getenv(mpis));
  };
  const int rank = number("RANK", "OMPI_COMM_WORLD_RANK");
  const bool leaves = rank + 1 == number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE");
  try {
    if (leaves && when == "start") leave(when, code);
    work(when, leaves, code);
  } catch (const chainmail::Error& error) {
    std::printf("told at %.3f rank %d by %s: %s\n", now(), rank, to_string(error.code()),
                error.what());
    std::fflush(stdout);
    // mpiexec and torchrun end the others with the first one.
    const bool ends_others = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr ||
                             std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
    if (ends_others) std::this_thread::sleep_for(std::chrono::seconds{2});
    return 7;
  }
  if (leaves) leave(when, code);
  return 0;
}
