// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that does nothing but all-reduces over the engine, as the plugin would set it up, and
// writes down when it runs, how fast, and with which error it ends. What the scripts in
// tests/soak/launcher/cases look at: they have to know it also when the launcher is dead.
//
//   fault_rank DIRECTORY [--elements N] [--pause-us N] [--steps N] [--value N] [--mpi 1]
//                        [--work-us N]
//
// DIRECTORY/rank.<r>, times in microseconds since 1970:
//   up TIME PID
//   steps TIME N MEAN_US         after the first step, then every second
//   error TIME TYPE PEER TEXT    what an all-reduce ended with
//   end TIME N                   after N steps
//   left TIME TEXT               after an exception, when the group has gone
//
// SIGUSR1 makes it use more and more memory; with SIGUSR2 it makes no more steps. --mpi: calls Open
// MPI's MPI_Init first, as programs do whose own messages go by MPI. --work-us: beside each
// all-reduce another thread calculates, for that much time of a processor, as backward would.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "ops/engine/create_group.h"
#include "ops/engine/group.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/job_info.h"
#include "plugin/job/environment/node_id.h"
#include "plugin/job/environment/settings.h"
#include "plugin/job/launcher/launcher_client.h"
#include "plugin/job/launcher/launcher_topology.h"
#include "plugin/job/rendezvous/job_rendezvous.h"

namespace {

using namespace chainmail;
using Clock = std::chrono::steady_clock;

volatile sig_atomic_t must_eat = 0;
volatile sig_atomic_t must_hang = 0;

struct Settings {
  std::string directory;
  std::size_t elements = std::size_t{64} << 10;
  std::chrono::microseconds pause{1000};
  std::uint64_t steps = ~std::uint64_t{0};
  unsigned value = 1;  // another one per job: what comes from elsewhere shows in the mean
  bool uses_mpi = false;
  std::chrono::microseconds work{0};
};

Settings parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) throw InvalidArgument("usage: fault_rank DIRECTORY [--NAME N]...");
  Settings settings;
  settings.directory = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const auto value = std::stoull(argv[i + 1]);
    if (name == "--elements") settings.elements = value;
    if (name == "--pause-us") settings.pause = std::chrono::microseconds(value);
    if (name == "--steps") settings.steps = value;
    if (name == "--value") settings.value = static_cast<unsigned>(value);
    if (name == "--work-us") settings.work = std::chrono::microseconds(value);
    if (name == "--mpi") settings.uses_mpi = value != 0;
  }
  return settings;
}

class Log {
 public:
  explicit Log(const std::string& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (!fd_.is_open()) throw system_error("cannot write " + path);
  }
  // One write, so that a reader never sees half a line.
  void line(const std::string& kind, const std::string& rest) const {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    const std::string text = kind + " " + std::to_string(now.count()) + " " + rest + "\n";
    if (::write(fd_.get(), text.data(), text.size()) < 0) throw system_error("write");
  }

 private:
  internal::UniqueFd fd_;
};

struct Joined {
  std::shared_ptr<internal::LauncherClient> launcher;
  std::shared_ptr<ops::Group> group;
};

// As plugin/job/world.cc does, which needs torch.
Joined join() {
  const internal::Environment environment = internal::process_environment();
  const internal::JobInfo info = internal::read_job_info(environment);
  if (info.store != internal::StoreLocation::kLauncher) {
    throw InvalidArgument("fault_rank: start it with the launcher");
  }
  Joined joined;
  joined.launcher = std::make_shared<internal::LauncherClient>(info.job_fd, info.generation,
                                                               std::chrono::seconds(60));
  const internal::Welcome& welcome = joined.launcher->welcome();
  ops::GroupOptions options;
  options.secret = welcome.secret;
  options.host = internal::host_name();
  const ops::Topology topology = internal::launcher_topology(welcome, info);
  if (topology.node_count() > 1) {
    options.interface = internal::launcher_interface(welcome, environment);
  }
  internal::apply(internal::read_settings(environment), options);
  auto board = std::make_shared<ops::PrefixRendezvous>(
      "group/world/", std::make_shared<internal::LauncherRendezvous>(joined.launcher));
  joined.group = ops::create_group(info.rank, topology, board, options, {}, joined.launcher);
  return joined;
}

// Not linked: the other jobs do without MPI, and it need not be there when this is built.
void init_mpi() {
  // Open MPI's own plugins look for its symbols among those of the program.
  void* library = ::dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(std::string("--mpi: ") + ::dlerror());
  const auto init = reinterpret_cast<int (*)(int*, char***)>(::dlsym(library, "MPI_Init"));
  if (init == nullptr) throw std::runtime_error("--mpi: libmpi.so.40 has no MPI_Init");
  if (const int code = init(nullptr, nullptr); code != 0) {
    throw std::runtime_error("MPI_Init returned " + std::to_string(code));
  }
}

void eat_memory() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  void* memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error("mmap");
  std::memset(memory, 1, kBytes);
}

// Until this thread has used that much of a processor, however long that takes.
void calculate(std::chrono::microseconds work) {
  volatile double sum = 0;
  timespec used{};
  do {
    for (int i = 1; i <= 10000; ++i) sum = sum + 1.0 / i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  } while (std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec) < work);
}

void run(const Settings& settings, const Joined& joined, const Log& log) {
  const auto value = static_cast<float>(settings.value);
  std::vector<float> data(settings.elements, value * static_cast<float>(joined.group->rank() + 1));
  const float wanted = value * static_cast<float>(joined.group->size() + 1) / 2;
  ops::Collective all_reduce;
  all_reduce.count = settings.elements;
  all_reduce.output = reinterpret_cast<std::byte*>(data.data());
  all_reduce.reduce_op = ops::ReduceOp::kAvg;
  auto last_line = Clock::now();
  std::uint64_t last_step = 0;
  std::chrono::nanoseconds spent{0};
  for (std::uint64_t step = 1; step <= settings.steps; ++step) {
    const auto begin = Clock::now();
    std::thread worker;
    if (settings.work.count() > 0) worker = std::thread(calculate, settings.work);
    const auto wait_for_worker = [&worker] {
      if (worker.joinable()) worker.join();
    };
    try {
      joined.group->run(all_reduce);
    } catch (...) {
      wait_for_worker();
      throw;
    }
    wait_for_worker();
    const auto now = Clock::now();
    spent += now - begin;
    if (std::any_of(data.begin(), data.end(), [wanted](float each) { return each != wanted; })) {
      throw std::runtime_error("the mean is wrong in step " + std::to_string(step));
    }
    joined.launcher->report_step(step);
    if (step == 1 || now - last_line >= std::chrono::seconds(1)) {
      const auto mean = std::chrono::duration<double, std::micro>(spent).count() /
                        static_cast<double>(step - last_step);
      log.line("steps", std::to_string(step) + " " + std::to_string(mean));
      last_line = now;
      last_step = step;
      spent = {};
    }
    if (must_eat != 0) eat_memory();
    while (must_hang != 0) ::pause();
    if (settings.pause.count() > 0) std::this_thread::sleep_for(settings.pause);
  }
}

const char* type_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? to_string(known->code()) : "std::exception";
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Log> log;
  try {
    ::signal(SIGUSR1, [](int) { must_eat = 1; });
    ::signal(SIGUSR2, [](int) { must_hang = 1; });
    const Settings settings = parse(argc, argv);
    const char* rank = std::getenv("RANK");
    log = std::make_unique<Log>(settings.directory + "/rank." + (rank != nullptr ? rank : "0"));
    log->line("up", std::to_string(::getpid()));
    if (settings.uses_mpi) init_mpi();
    const Joined joined = join();
    try {
      run(settings, joined, *log);
    } catch (const Error& error) {
      // Before the group goes: what takes time then would count as time until the error came.
      const auto* peer = dynamic_cast<const PeerError*>(&error);
      log->line("error", std::string(to_string(error.code())) + " " +
                             std::to_string(peer != nullptr ? peer->peer_rank() : -1) + " " +
                             error.what());
      throw;
    }
    joined.group->shutdown();
    log->line("end", std::to_string(settings.steps));
    return 0;
  } catch (const std::exception& error) {
    if (log) log->line("left", error.what());
    std::cerr << "fault_rank: " << type_of(error) << ": " << error.what() << std::endl;
    return 1;
  }
}
