// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A program whose last rank fails in the way that its argument says, while the others wait for it:
// throw, check, thread, terminate, segv, overflow, abort. What a rank is told by exception it
// prints, and ends with 7 unless the starter is faster; with a second argument "uncaught" nobody
// catches anything. With "child-throw" or "child-segv" it is a child of fork that fails, and the
// rank ends with 0.

#include <chainmail/terminate.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <c10/util/Exception.h>

namespace {

int overflow(int depth) {
  volatile char page[4096] = {};
  page[depth % 4096] = 1;
  return depth < 0 ? 0 : overflow(depth + 1) + page[0];
}

std::uintptr_t volatile nowhere = 0;  // which neither the compiler nor a sanitizer knows

__attribute__((no_sanitize("address", "undefined"))) void store_to_nowhere() {
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

// The child calls nothing of torch, which does not outlive a fork.
bool child_fails(std::string_view how) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (how == "child-throw") throw std::runtime_error("a mistake of a child");
    store_to_nowhere();
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
         WTERMSIG(status) == (how == "child-throw" ? SIGABRT : SIGSEGV);
}

void fail(std::string_view how, chainmail::Communicator& comm) {
  if (how.starts_with("child-")) {
    if (child_fails(how)) return;
    std::fprintf(stderr, "the child did not end as without the hook\n");
    std::_Exit(8);
  }
  if (how == "throw") throw std::runtime_error("a mistake of the program");
  if (how == "check") {
    TORCH_CHECK(false, "a mistake that torch finds");  // carries a backtrace of many lines
  }
  if (how == "thread") {
    std::thread worker([] { throw std::runtime_error("a mistake of a thread"); });
    comm.barrier();  // as a rank does that knows nothing of its thread's fate
    worker.join();
  }
  if (how == "terminate") std::terminate();
  if (how == "segv") store_to_nowhere();
  if (how == "overflow") std::printf("%d\n", overflow(0));
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const auto comm = chainmail::create_communicator("flat");
  chainmail::add_except_hook(comm);
  chainmail::add_except_hook(comm);  // changes nothing
  comm->barrier();
  if (comm->rank() == comm->size() - 1) fail(argc > 1 ? argv[1] : "", *comm);
  if (argc > 2 && std::string_view(argv[2]) == "uncaught") comm->barrier();
  try {
    comm->barrier();
  } catch (const chainmail::PeerError& error) {
    std::fprintf(stderr, "rank %d was told: %s\n", comm->rank(), error.what());
    std::this_thread::sleep_for(std::chrono::seconds{20});  // the starter ends this rank before
    std::_Exit(7);
  }
  return 0;
}
