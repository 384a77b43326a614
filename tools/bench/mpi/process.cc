// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-bench-<mpi>: one MPI process beside each rank of chainmail-bench, which starts it and
// says what to time. Built once per MPI; no torch.

#include <mpi.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "tools/bench/mpi/protocol.h"

namespace chainmail::bench {
namespace {

struct Type {
  MPI_Datatype mpi;
  std::size_t bytes;
  void (*fill)(void* data, std::size_t count, int factor);
  std::int64_t (*count_wrong)(const void* data, std::size_t count, int factor);
};

// 1, 2, 3, 1, ... times `factor`, as the other contestants' values.
template <typename T>
T value_at(std::size_t i, int factor) {
  return static_cast<T>(static_cast<int>(i % 3 + 1) * factor);
}

template <typename T>
Type type_of(MPI_Datatype mpi) {
  return {mpi, sizeof(T),
          [](void* data, std::size_t count, int factor) {
            for (std::size_t i = 0; i < count; ++i) {
              static_cast<T*>(data)[i] = value_at<T>(i, factor);
            }
          },
          [](const void* data, std::size_t count, int factor) {
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
              if (static_cast<const T*>(data)[i] != value_at<T>(i, factor)) ++wrong;
            }
            return wrong;
          }};
}

// The benchmark refuses what is not here before it sends anything.
Type find_type(const std::string& name) {
  if (name == "float32") return type_of<float>(MPI_FLOAT);
  if (name == "float64") return type_of<double>(MPI_DOUBLE);
  if (name == "int8") return type_of<std::int8_t>(MPI_INT8_T);
  if (name == "uint8") return type_of<std::uint8_t>(MPI_UINT8_T);
  if (name == "int32") return type_of<std::int32_t>(MPI_INT32_T);
  if (name == "int64") return type_of<std::int64_t>(MPI_INT64_T);
  throw std::invalid_argument("MPI type of " + name);
}

MPI_Op find_op(const std::string& name) {
  if (name == "sum") return MPI_SUM;
  if (name == "min") return MPI_MIN;
  if (name == "max") return MPI_MAX;
  throw std::invalid_argument("MPI reduction " + name);
}

class Buffer {
 public:
  void resize(std::size_t bytes) {
    if (bytes == bytes_) return;
    release();
    // Page-aligned, as large tensors are; never 0 bytes.
    data_ = std::aligned_alloc(4096, (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096);
    if (data_ == nullptr) throw std::bad_alloc();
    bytes_ = bytes;
  }
  void clear() {
    if (bytes_ > 0) std::memset(data_, 0, bytes_);
  }
  void* get() const { return data_; }

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

 private:
  void release() { std::free(data_); }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Worker {
 public:
  Worker() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }

  std::int64_t check(const MpiCommand& command) {
    load(command);
    type_.fill(source(), count_, rank_ + 1);
    call();
    return type_.count_wrong(output_.get(), count_, factor(command.redop));
  }
  Sample time(const MpiCommand& command) {
    load(command);
    input_.clear();
    output_.clear();
    ::sched_setaffinity(0, sizeof(command.cores), &command.cores);
    MPI_Barrier(MPI_COMM_WORLD);
    return time_calls(command.repeats, [this] { call(); });
  }

 private:
  void load(const MpiCommand& command) {
    type_ = find_type(command.dtype);
    op_ = find_op(command.redop);
    count_ = command.count;
    is_in_place_ = command.is_in_place != 0;
    input_.resize(is_in_place_ ? 0 : count_ * type_.bytes);
    output_.resize(count_ * type_.bytes);
  }
  void* source() const { return is_in_place_ ? output_.get() : input_.get(); }
  void call() const {
    MPI_Allreduce(is_in_place_ ? MPI_IN_PLACE : input_.get(), output_.get(),
                  static_cast<int>(count_), type_.mpi, op_, MPI_COMM_WORLD);
  }
  int factor(const std::string& redop) const {
    if (redop == "sum") return size_ * (size_ + 1) / 2;
    return redop == "min" ? 1 : size_;
  }

  int rank_ = 0;
  int size_ = 1;
  Type type_{};
  MPI_Op op_ = MPI_SUM;
  std::size_t count_ = 0;
  bool is_in_place_ = false;
  Buffer input_;
  Buffer output_;
};

// False at the end of the stream.
bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

int connect_to(const std::string& token, int rank) {
  const MpiSocketName name = mpi_socket_name(token, rank);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) {
    throw std::runtime_error("rank " + std::to_string(rank) +
                             " of chainmail-bench is not on this node: " + std::strerror(errno));
  }
  return fd;
}

// Ends this process when the benchmark's has gone, also in the middle of a collective.
void end_with_benchmark(int fd) {
  std::thread([fd] {
    pollfd gone{fd, POLLRDHUP, 0};
    while (::poll(&gone, 1, -1) < 0 && errno == EINTR) {
    }
    // The main thread sees the end, too, unless it waits for a peer that has gone.
    ::sleep(5);
    ::_exit(1);
  }).detach();
}

void serve(const std::string& token) {
  Worker worker;
  const int fd = connect_to(token, worker.rank());
  end_with_benchmark(fd);
  MpiHello hello;
  hello.rank = worker.rank();
  hello.size = worker.size();
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  // Pages of text follow: "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\nMPICH ...".
  std::replace(version, version + length, '\t', ' ');
  std::string(version, std::strcspn(version, ",\n")).copy(hello.version, sizeof(hello.version) - 1);
  if (!write_all(fd, &hello, sizeof(hello))) return;

  MpiCommand command;
  while (read_all(fd, &command, sizeof(command))) {
    MpiAnswer answer;
    Sample sample;
    if (command.task == MpiTask::kCheck) {
      answer.wrong = worker.check(command);
    } else {
      sample = worker.time(command);
      answer.samples = static_cast<std::int32_t>(sample.us.size());
      answer.cpu_s = sample.cpu_s;
      answer.wall_s = sample.wall_s;
    }
    if (!write_all(fd, &answer, sizeof(answer)) ||
        !write_all(fd, sample.us.data(), sample.us.size() * sizeof(double))) {
      return;
    }
  }
}

}  // namespace
}  // namespace chainmail::bench

int main(int argc, char** argv) {
  if (argc != 2 || std::strlen(argv[1]) > 40) {
    std::fprintf(stderr, "this program is started by chainmail-bench --against mpi\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  try {
    chainmail::bench::serve(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
