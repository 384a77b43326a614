// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A program that uses MPI itself, before, beside and after a group over MPI; started by
// mpiexec_test.sh. usage: own_mpi_rank single|serialized|multiple SCRATCH_DIRECTORY

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/ops/support/groups.h"
#include "tests/ops/support/processes.h"

namespace chainmail::ops {
namespace {

void expect(bool is_true, const std::string& what) {
  if (!is_true) throw std::runtime_error("expected: " + what);
}

void sum(Group& group) {
  std::vector<float> values(500'000, 1.0F);
  group.run(test::on(values));
  expect(values.back() == static_cast<float>(group.size()), "a right sum");
}

std::shared_ptr<Group> join(int rank, int size, const std::string& directory) {
  GroupOptions options;
  options.cross = CrossTransport::kMpi;
  options.timeout = std::chrono::seconds{30};
  return create_group(
      rank, Topology::from_node_sizes(std::vector<int>(static_cast<std::size_t>(size), 1)),
      std::make_shared<test::DirectoryRendezvous>(directory), options);
}

// The receive that the program waits in takes any message of its communicator; none is the group's.
void exchange_beside(Group& group, int rank, int size) {
  std::array<int, 2> numbers = {rank, -1};
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Irecv(&numbers[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
  for (int i = 0; i < 10; ++i) sum(group);
  MPI_Send(numbers.data(), 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
  MPI_Wait(&receive, MPI_STATUS_IGNORE);
  expect(numbers[1] == (rank + size - 1) % size, "the program's own message");
}

int run(const std::string& mode, const std::string& directory) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr,
                  mode == "single"       ? MPI_THREAD_SINGLE
                  : mode == "serialized" ? MPI_THREAD_SERIALIZED
                                         : MPI_THREAD_MULTIPLE,
                  &level);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::shared_ptr<Group> group;
  try {
    group = join(rank, size, directory);
    expect(mode != "single", "a refusal of MPI_THREAD_SINGLE");
    exchange_beside(*group, rank, size);
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    expect(mode == "single" && text.find("MPI_Init_thread") != std::string::npos, text);
  }
  MPI_Finalize();  // before the group ends: it must not call MPI any more
  try {
    if (group) sum(*group);
    expect(group == nullptr, "an error after MPI_Finalize");
  } catch (const MpiError& error) {
    expect(std::string(error.what()).find("MPI_Finalize") != std::string::npos, error.what());
  }
  return 0;
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return chainmail::ops::run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << "\n";
    return 1;
  }
}
