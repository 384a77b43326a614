// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/mpi/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "plugin/job/environment/node_id.h"
#include "tools/bench/machine/machine.h"

namespace chainmail::bench {
namespace {

using internal::Deadline;
using internal::UniqueFd;

// MPI_Init of eight processes on two cores takes two seconds.
constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::minutes kTaskTimeout{5};

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) token += std::to_string(device() % 100000) + ".";
  return token + std::to_string(::getpid());
}

bool is_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Beside the benchmark: bin/chainmail-bench, libexec/chainmail/chainmail-bench-openmpi.
std::string find_program(const MpiFlavor& flavor) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const auto program = folder / "libexec/chainmail" / flavor.program;
  const bool is_installed = is_in_path(flavor.mpiexec);
  if (!is_installed || !std::filesystem::exists(program)) {
    throw InvalidArgument("cannot compare with " + flavor.name + ": " +
                          (is_installed ? program.string() : flavor.mpiexec) +
                          " is missing; apt install " + flavor.package +
                          ", then configure and build again");
  }
  return program;
}

UniqueFd listen_for_mpi(const std::string& token, int rank) {
  const MpiSocketName name = mpi_socket_name(token, rank);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
      ::listen(fd.get(), 1) != 0) {
    throw system_error("listening for an MPI process");
  }
  return fd;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(std::vector<std::string> words) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_of_starter(*entry)) environment.emplace_back(*entry);
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);  // tables stand alone on our stdout
  pid_t pid = -1;
  int failed = 0;
  // From a thread that may use all cores: mpiexec counts those that it inherits.
  std::thread([&] {
    use_all_cores();
    failed = ::posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, pointers_to(words).data(),
                            pointers_to(environment).data());
  }).join();
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw SystemError("cannot start " + words[0], failed);
  return pid;
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::getuid();
}

}  // namespace

MpiJob::MpiJob(Control& control, const MpiFlavor& flavor, const std::string& remote_shell)
    : name_(flavor.name), rank_(control.ranks().rank) {
  const std::string program = find_program(flavor);
  if (control.ranks().nodes > 1 && !flavor.is_for_nodes) {
    throw InvalidArgument(name_ + " is measured on one node only");
  }
  const std::string token = control.share(random_token());
  const UniqueFd listener = listen_for_mpi(token, rank_);
  const std::vector<std::string> hosts = control.collect(internal::host_name());  // all listen
  if (rank_ == 0) mpiexec_ = spawn(mpiexec_command(flavor, program, token, hosts, remote_shell));
  meet(listener.get(), control.ranks().size);
}

MpiJob::~MpiJob() {
  socket_.reset();  // the processes end when they read the end
  if (mpiexec_ < 0) return;
  const Deadline deadline = Deadline::after(std::chrono::seconds{10});
  while (!has_mpiexec_ended() && !deadline.has_passed()) ::poll(nullptr, 0, 10);
  if (mpiexec_ < 0) return;
  ::kill(mpiexec_, SIGKILL);
  ::waitpid(mpiexec_, nullptr, 0);
}

bool MpiJob::has_mpiexec_ended() {
  if (mpiexec_ > 0 && ::waitpid(mpiexec_, nullptr, WNOHANG) == mpiexec_) mpiexec_ = -1;
  return rank_ == 0 && mpiexec_ < 0;
}

void MpiJob::meet(int listener, int size) {
  const Deadline deadline = Deadline::after(kStartTimeout);
  while (!socket_.is_open()) {
    if (has_mpiexec_ended()) {
      throw InvalidArgument(name_ + ": mpiexec ended before its processes came; see above");
    }
    if (deadline.has_passed()) {
      throw TimeoutError(name_ + ": no MPI process came to rank " + std::to_string(rank_) +
                         " within 60 s");
    }
    pollfd ready{listener, POLLIN, 0};
    if (::poll(&ready, 1, 50) <= 0) continue;
    UniqueFd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.is_open() && is_same_user(peer.get())) socket_ = std::move(peer);
  }
  MpiHello hello;
  receive(&hello, sizeof(hello), kStartTimeout);
  if (hello.rank != rank_ || hello.size != size) {
    throw Error(ErrorCode::kMpi, name_ + ": MPI made " + std::to_string(hello.size) +
                                     " ranks instead of " + std::to_string(size));
  }
  version_ = hello.version;
}

void MpiJob::receive(void* data, std::size_t bytes, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd ready{socket_.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(deadline.left().count()));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) {
      throw TimeoutError(name_ + ": the MPI process beside rank " + std::to_string(rank_) +
                         " does not answer");
    }
    const ssize_t got = ::recv(socket_.get(), at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      throw Error(ErrorCode::kMpi,
                  name_ + ": the MPI process beside rank " + std::to_string(rank_) + " has ended");
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

Sample MpiJob::run(const MpiCommand& command, std::int64_t* wrong) {
  // A command fits into any socket's buffer.
  if (::send(socket_.get(), &command, sizeof(command), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof(command))) {
    throw system_error(name_ + ": telling the MPI process what to do");
  }
  MpiAnswer answer;
  receive(&answer, sizeof(answer), kTaskTimeout);
  if (wrong != nullptr) *wrong = answer.wrong;
  Sample sample;
  sample.cpu_s = answer.cpu_s;
  sample.wall_s = answer.wall_s;
  sample.us.resize(static_cast<std::size_t>(answer.samples));
  receive(sample.us.data(), sample.us.size() * sizeof(double), kTaskTimeout);
  return sample;
}

}  // namespace chainmail::bench
