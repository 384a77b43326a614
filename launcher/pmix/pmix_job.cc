// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmix/pmix_job.h"

#include <pmix_server.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

struct FreeDeleter {
  void operator()(char* text) const noexcept { std::free(text); }
};
using CText = std::unique_ptr<char, FreeDeleter>;

// Which nodes there are and which ranks each has. A node without ranks is no node of MPI's.
void add_maps(PmixInfos& job, const MpiOrder& order) {
  std::vector<std::string> names;
  std::vector<std::string> ranks;
  for (std::uint32_t node = 0; node < order.node_names.size(); ++node) {
    const std::vector<std::uint32_t> numbers = order.ranks_of(node);
    if (numbers.empty()) continue;
    names.push_back(order.node_names[node]);
    ranks.push_back(joined(numbers, ","));
  }
  char* text = nullptr;
  check_pmix(PMIx_generate_regex(joined(names, ",").c_str(), &text),
             "encode the names of the nodes");
  const CText nodes(text);
  check_pmix(PMIx_generate_ppn(joined(ranks, ";").c_str(), &text),
             "encode the places of the ranks");
  const CText places(text);
  job.add(PMIX_NODE_MAP, nodes.get());
  job.add(PMIX_PROC_MAP, places.get());
}

void add_sizes(PmixInfos& job, const MpiOrder& order, const std::string& directory) {
  const auto size = static_cast<std::uint32_t>(order.node_of_rank.size());
  std::vector<std::uint32_t> nodes = order.node_of_rank;
  std::sort(nodes.begin(), nodes.end());
  const auto used = std::unique(nodes.begin(), nodes.end()) - nodes.begin();
  job.add(PMIX_JOBID, order.name);
  job.add(PMIX_JOB_SIZE, size);
  job.add(PMIX_MAX_PROCS, size);
  job.add(PMIX_UNIV_SIZE, size);
  job.add(PMIX_JOB_NUM_APPS, std::uint32_t{1});
  job.add(PMIX_NUM_NODES, static_cast<std::uint32_t>(used));
  job.add(PMIX_TMPDIR, directory);
  job.add(PMIX_NSDIR, directory);
  job.add_flag(PMIX_TDIR_RMCLEAN);
}

void add_node(PmixInfos& job, const MpiOrder& order) {
  const std::vector<std::uint32_t> peers = order.ranks_of(order.node);
  PmixInfos node;
  node.add(PMIX_HOSTNAME, order.node_names[order.node]);
  node.add(PMIX_NODEID, order.node);
  node.add(PMIX_LOCAL_SIZE, static_cast<std::uint32_t>(peers.size()));
  node.add(PMIX_LOCAL_PEERS, joined(peers, ","));
  job.add_array(PMIX_NODE_INFO_ARRAY, node);
}

void add_ranks(PmixInfos& job, const MpiOrder& order) {
  std::vector<std::uint16_t> seen(order.node_names.size());
  for (std::uint32_t rank = 0; rank < order.node_of_rank.size(); ++rank) {
    const std::uint32_t node = order.node_of_rank[rank];
    const std::uint16_t local = seen[node]++;
    PmixInfos place;
    place.add_rank(PMIX_RANK, rank);
    place.add_small(PMIX_LOCAL_RANK, local);
    place.add_small(PMIX_NODE_RANK, local);
    place.add(PMIX_NODEID, node);
    place.add(PMIX_HOSTNAME, order.node_names[node]);
    place.add(PMIX_APPNUM, std::uint32_t{0});
    job.add_array(PMIX_PROC_INFO_ARRAY, place);
  }
}

}  // namespace

PmixInfos::~PmixInfos() {
  for (pmix_info_t& info : infos_) PMIX_INFO_DESTRUCT(&info);
}

void PmixInfos::add(const char* key, const std::string& text) {
  add_value(key, text.c_str(), PMIX_STRING);
}
void PmixInfos::add(const char* key, std::uint32_t number) { add_value(key, &number, PMIX_UINT32); }
void PmixInfos::add_small(const char* key, std::uint16_t number) {
  add_value(key, &number, PMIX_UINT16);
}
void PmixInfos::add_rank(const char* key, pmix_rank_t rank) {
  add_value(key, &rank, PMIX_PROC_RANK);
}
void PmixInfos::add_flag(const char* key) {
  const bool yes = true;
  add_value(key, &yes, PMIX_BOOL);
}

void PmixInfos::add_array(const char* key, const PmixInfos& infos) {
  pmix_data_array_t array{PMIX_INFO, infos.size(), const_cast<pmix_info_t*>(infos.data())};
  add_value(key, &array, PMIX_DATA_ARRAY);
}

void PmixInfos::add_value(const char* key, const void* value, pmix_data_type_t type) {
  pmix_info_t info;
  PMIX_INFO_CONSTRUCT(&info);
  check_pmix(PMIx_Info_load(&info, key, value, type), std::string("hold ") + key);
  infos_.push_back(info);
}

void check_pmix(pmix_status_t status, const std::string& what) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return;
  throw SystemError("libpmix cannot " + what + ": " + PMIx_Error_string(status), EPROTO);
}

void register_job(const MpiOrder& order, const std::string& directory) {
  PmixInfos job;
  add_sizes(job, order, directory);
  add_maps(job, order);
  add_node(job, order);
  add_ranks(job, order);
  pmix_nspace_t nspace;
  PMIX_LOAD_NSPACE(nspace, order.name.c_str());
  const std::vector<std::uint32_t> local = order.ranks_of(order.node);
  check_pmix(PMIx_server_register_nspace(nspace, static_cast<int>(local.size()), job.data(),
                                         job.size(), nullptr, nullptr),
             "take the job");
  for (const std::uint32_t rank : local) {
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, order.name.c_str(), rank);
    check_pmix(PMIx_server_register_client(&proc, getuid(), getgid(), nullptr, nullptr, nullptr),
               "take rank " + std::to_string(rank));
  }
}

}  // namespace chainmail::launch
