// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that speaks PMI-1 as MPICH does and is nothing else: puts VALUES values of BYTES bytes,
// waits for all ranks, and reads the last value of the rank after it.
//
// usage: fence_probe VALUES BYTES

#include <stdio.h>
#include <stdlib.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace {

FILE* channel = nullptr;

// The answer to `command`; whatever is not success ends the program.
std::string ask(const std::string& command) {
  char* line = nullptr;
  std::size_t size = 0;
  if (fputs((command + "\n").c_str(), channel) < 0 || fflush(channel) != 0 ||
      getline(&line, &size, channel) < 0) {
    std::cerr << "no answer to " << command.substr(0, 60) << std::endl;
    std::exit(3);
  }
  std::string answer(line);
  free(line);
  if (answer.find("rc=0") == std::string::npos && answer.find("rc=") != std::string::npos) {
    std::cerr << command.substr(0, 60) << ": " << answer;
    std::exit(4);
  }
  return answer;
}

// Different for each rank and value.
std::string value_of(long rank, long number, std::size_t bytes) {
  std::string value = std::to_string(rank) + "-" + std::to_string(number) + "-";
  value.resize(bytes, static_cast<char>('a' + rank % 26));
  return value;
}

std::string key_of(long rank, long number) {
  return "key=P" + std::to_string(rank) + "-" + std::to_string(number);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 || std::getenv("PMI_FD") == nullptr) {
    std::cerr << "usage: fence_probe VALUES BYTES, as a rank of a job with --mpi pmi1\n";
    return 2;
  }
  const long values = std::atol(words[1]);
  const auto bytes = static_cast<std::size_t>(std::atol(words[2]));
  const long rank = std::atol(std::getenv("PMI_RANK"));
  const long other = (rank + 1) % std::atol(std::getenv("PMI_SIZE"));
  channel = fdopen(std::atoi(std::getenv("PMI_FD")), "r+");
  if (channel == nullptr) return 2;
  ask("cmd=init pmi_version=1 pmi_subversion=1");
  for (long i = 0; i < values; ++i) {
    ask("cmd=put kvsname=job " + key_of(rank, i) + " value=" + value_of(rank, i, bytes));
  }
  ask("cmd=barrier_in");
  const std::string got = ask("cmd=get kvsname=job " + key_of(other, values - 1));
  if (got.find("value=" + value_of(other, values - 1, bytes)) == std::string::npos) {
    std::cerr << "rank " << rank << " reads of rank " << other << ": " << got.substr(0, 80) << "\n";
    return 5;
  }
  ask("cmd=finalize");
  return 0;
}
