// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An MPI program for the tests of the launcher, plain MPI-3 in C++; built with every MPI there is.
//   mpi_probe world              every rank checks its world; rank 0 prints "ok SIZE nodes N"
//   mpi_probe names              the halves of the world meet by publish, lookup, accept, connect
//   mpi_probe abort R CODE       rank R calls MPI_Abort while the others wait
//   mpi_probe exit R CODE        rank R leaves by _exit without MPI_Finalize while the others wait
//   mpi_probe fault R            rank R gets SIGSEGV
//   mpi_probe kill R             rank R kills itself
//   mpi_probe late               rank 0 comes to MPI_Init a second later
//   mpi_probe run DIRECTORY      sums for ever; DIRECTORY/rank.<r> as fault_rank writes it
//   mpi_probe lookup             asks for a name that nobody has published
//   mpi_probe spawn              asks for further processes; wants a refusal

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

int world_rank = 0;
int world_size = 0;

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "mpi_probe: rank %d: %s\n", world_rank, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 99);
  std::abort();
}

void want(bool is_right, const std::string& what) {
  if (!is_right) wrong(what);
}

int number_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

// Big enough for every protocol of the transport.
void check_allreduce(MPI_Comm comm, int size) {
  for (const int count : {1, 1000, 100000}) {
    std::vector<int> mine(static_cast<std::size_t>(count), 1);
    std::vector<int> sum(mine.size());
    MPI_Allreduce(mine.data(), sum.data(), count, MPI_INT, MPI_SUM, comm);
    for (const int value : sum) want(value == size, "a sum is " + std::to_string(value));
  }
}

int nodes_of_world() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int local = 0;
  int local_size = 0;
  MPI_Comm_rank(node, &local);
  MPI_Comm_size(node, &local_size);
  want(local == number_in("LOCAL_RANK") && local_size == number_in("LOCAL_WORLD_SIZE"),
       "on its node it is " + std::to_string(local) + " of " + std::to_string(local_size));
  int is_first = local == 0 ? 1 : 0;
  int nodes = 0;
  MPI_Allreduce(&is_first, &nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Win window = MPI_WIN_NULL;
  int* memory = nullptr;
  MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node,
                          static_cast<void*>(&memory), &window);
  *memory = local;
  MPI_Barrier(node);
  int* of_next = nullptr;
  MPI_Aint bytes = 0;
  int unit = 0;
  const int next = (local + 1) % local_size;
  MPI_Win_shared_query(window, next, &bytes, &unit, static_cast<void*>(&of_next));
  want(*of_next == next, "the memory of its neighbour says " + std::to_string(*of_next));
  MPI_Barrier(node);
  MPI_Win_free(&window);
  MPI_Comm_free(&node);
  return nodes;
}

int world() {
  want(world_rank == number_in("RANK") && world_size == number_in("WORLD_SIZE"),
       "MPI says " + std::to_string(world_rank) + " of " + std::to_string(world_size));
  check_allreduce(MPI_COMM_WORLD, world_size);
  const int nodes = nodes_of_world();
  if (world_rank == 0) std::printf("ok %d nodes %d\n", world_size, nodes);
  return 0;
}

int names() {
  const bool serves = world_rank % 2 == 0;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, serves ? 0 : 1, world_rank, &half);
  char service[] = "chainmail-probe";
  char port[MPI_MAX_PORT_NAME] = "";
  int half_rank = 0;
  MPI_Comm_rank(half, &half_rank);
  MPI_Comm other = MPI_COMM_NULL;
  if (serves) {
    if (half_rank == 0) {
      MPI_Open_port(MPI_INFO_NULL, port);
      MPI_Publish_name(service, MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &other);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    if (half_rank == 0) MPI_Lookup_name(service, MPI_INFO_NULL, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &other);
  }
  MPI_Comm merged = MPI_COMM_NULL;
  MPI_Intercomm_merge(other, serves ? 0 : 1, &merged);
  check_allreduce(merged, world_size);
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&other);
  if (serves && half_rank == 0) {
    MPI_Unpublish_name(service, MPI_INFO_NULL, port);
    MPI_Close_port(port);
  }
  MPI_Comm_free(&half);
  if (world_rank == 0) std::printf("ok met\n");
  return 0;
}

int lookup() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  char service[] = "nobody-has-this";
  char port[MPI_MAX_PORT_NAME] = "";
  want(MPI_Lookup_name(service, MPI_INFO_NULL, port) != MPI_SUCCESS, "it was found");
  if (world_rank == 0) std::printf("ok not found\n");
  return 0;
}

int spawn() {
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  char program[] = "/bin/true";
  MPI_Comm children = MPI_COMM_NULL;
  const int status = MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                                    &children, MPI_ERRCODES_IGNORE);
  want(status != MPI_SUCCESS, "it was not refused");
  if (world_rank == 0) std::printf("ok refused\n");
  return 0;
}

// Until it is ended from outside; see tests/soak/launcher/cases/faults.py.
[[noreturn]] void run(const std::string& directory) {
  std::FILE* log = std::fopen((directory + "/rank." + std::to_string(world_rank)).c_str(), "a");
  want(log != nullptr, "cannot write into " + directory);
  std::setvbuf(log, nullptr, _IOLBF, BUFSIZ);
  std::fprintf(log, "up %lld %d\n", static_cast<long long>(std::time(nullptr)) * 1000000, getpid());
  check_allreduce(MPI_COMM_WORLD, world_size);
  std::fprintf(log, "steps %lld 1 0\n", static_cast<long long>(std::time(nullptr)) * 1000000);
  while (true) {
    check_allreduce(MPI_COMM_WORLD, world_size);
    usleep(5000);
  }
}

// One rank goes, the others wait for it.
void part_with(const std::string& how, int rank, int code) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank != rank) {
    check_allreduce(MPI_COMM_WORLD, world_size);
    wrong("a sum without rank " + std::to_string(rank));
  }
  if (how == "abort") MPI_Abort(MPI_COMM_WORLD, code);
  if (how == "exit") _exit(code);
  if (how == "fault") raise(SIGSEGV);
  if (how == "kill") raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "world";
  const int rank = argc > 2 ? std::atoi(argv[2]) : 0;
  const int code = argc > 3 ? std::atoi(argv[3]) : 0;
  if (what == "late" && number_in("RANK") == 0) sleep(1);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  int result = 2;
  if (what == "world" || what == "late") result = world();
  if (what == "names") result = names();
  if (what == "lookup") result = lookup();
  if (what == "spawn") result = spawn();
  if (what == "run") run(argc > 2 ? argv[2] : ".");
  if (result == 2) part_with(what, rank, code);
  MPI_Finalize();
  return result;
}
