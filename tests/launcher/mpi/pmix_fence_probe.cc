// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that meets the others through PMIx as Open MPI does and is nothing else: puts one value of
// BYTES bytes, waits for all ranks in a fence that collects, and reads the value of the rank after
// it.
//
// usage: pmix_fence_probe BYTES

#include <pmix.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

namespace {

void check(pmix_status_t status, const char* what) {
  if (status == PMIX_SUCCESS) return;
  std::cerr << what << ": " << PMIx_Error_string(status) << std::endl;
  std::_Exit(3);
}

std::string value_of(pmix_rank_t rank, std::size_t bytes) {
  std::string value = std::to_string(rank) + "-";
  value.resize(bytes, static_cast<char>('a' + rank % 26));
  return value;
}

// Of the job, or of a rank; the caller ends soon, so nothing is released.
const pmix_value_t* value_at(const pmix_proc_t& own, pmix_rank_t rank, const char* key) {
  pmix_proc_t proc = own;
  proc.rank = rank;
  pmix_value_t* value = nullptr;
  check(PMIx_Get(&proc, key, nullptr, 0, &value), key);
  return value;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: pmix_fence_probe BYTES, as a rank of a job with --mpi pmix\n";
    return 2;
  }
  const auto bytes = static_cast<std::size_t>(std::atol(words[1]));
  pmix_proc_t own;
  check(PMIx_Init(&own, nullptr, 0), "PMIx_Init");
  const std::uint32_t size = value_at(own, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE)->data.uint32;
  std::string text = value_of(own.rank, bytes);
  pmix_value_t value;
  value.type = PMIX_STRING;
  value.data.string = text.data();
  check(PMIx_Put(PMIX_GLOBAL, "chainmail-probe", &value), "PMIx_Put");
  check(PMIx_Commit(), "PMIx_Commit");
  pmix_proc_t all = own;
  all.rank = PMIX_RANK_WILDCARD;
  const bool collects = true;
  pmix_info_t info;
  std::memset(&info, 0, sizeof info);
  std::strncpy(info.key, PMIX_COLLECT_DATA, sizeof info.key - 1);
  info.value.type = PMIX_BOOL;
  info.value.data.flag = collects;
  check(PMIx_Fence(&all, 1, &info, 1), "PMIx_Fence");
  const pmix_rank_t other = (own.rank + 1) % size;
  const std::string got = value_at(own, other, "chainmail-probe")->data.string;
  if (got != value_of(other, bytes)) {
    std::cerr << "rank " << own.rank << " reads of rank " << other << ": " << got.substr(0, 40)
              << std::endl;
    return 5;
  }
  check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
  return 0;
}
