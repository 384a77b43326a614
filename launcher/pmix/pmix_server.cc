// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The functions that libpmix calls, in its own thread, when a rank wants something of the job, and
// the way back.

#include "launcher/pmix/pmix_server.h"

#include <pmix_server.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/pmix/handed_sockets.h"
#include "launcher/pmix/pmix_job.h"
#include "launcher/pmix/pmix_names.h"
#include "launcher/pmix/pmix_pending.h"

namespace chainmail::launch {
namespace {

// libpmix hands no context to these functions. Never destroyed: its threads end with the process.
struct Server {
  std::string job;
  PmixSend send;
  PmixPending pending;
};
Server* server = nullptr;

pmix_status_t status_of(std::int32_t status) {
  if (status == kMpiGood) return PMIX_SUCCESS;
  if (status == kMpiTaken) return PMIX_ERR_DUPLICATE_KEY;
  if (status == kMpiFull) return PMIX_ERR_OUT_OF_RESOURCE;
  return status == kMpiNotFound ? PMIX_ERR_NOT_FOUND : PMIX_ERR_TIMEOUT;
}

// Empty for the whole job; nothing when a rank of another job is among them.
std::optional<std::vector<std::uint32_t>> ranks_in(const pmix_proc_t* procs, std::size_t count) {
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = 0; i < count; ++i) {
    if (server->job != procs[i].nspace) return std::nullopt;
    if (procs[i].rank == PMIX_RANK_WILDCARD) return std::vector<std::uint32_t>();
    ranks.push_back(procs[i].rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

pmix_status_t gather(const std::string& key, const pmix_proc_t* procs, std::size_t count,
                     std::string data, PmixPending::Reply reply) {
  const auto ranks = ranks_in(procs, count);
  if (!ranks) return PMIX_ERR_NOT_SUPPORTED;
  server->pending.add_fence(key, *ranks, std::move(reply));
  server->send({.op = MpiOp::kGather, .key = key, .ranks = *ranks, .data = std::move(data)});
  return PMIX_SUCCESS;
}

// `reply` is called with the answer, which has the number of the question.
pmix_status_t ask(MpiMessage message, PmixPending::Reply reply,
                  std::optional<std::chrono::seconds> limit = {}) {
  message.id = server->pending.add(std::move(reply), limit);
  server->send(message);
  return PMIX_SUCCESS;
}

void give_modex(pmix_modex_cbfunc_t done, void* context, pmix_status_t status, std::string bytes) {
  auto data = std::make_unique<std::string>(std::move(bytes));
  const char* begin = data->data();
  const std::size_t size = data->size();
  // libpmix reads them later and calls the function when it has.
  done(
      status, begin, size, context, [](void* owned) { delete static_cast<std::string*>(owned); },
      data.release());
}

template <MpiOp op>
pmix_status_t tell_of(const pmix_proc_t* proc, void*, pmix_op_cbfunc_t, void*) {
  server->send({.op = op, .ranks = {proc->rank}});
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t on_abort(const pmix_proc_t* proc, void*, int status, const char* words, pmix_proc_t*,
                       std::size_t, pmix_op_cbfunc_t, void*) {
  server->send({.op = MpiOp::kAbort,
                .status = status,
                .ranks = {proc->rank},
                .data = words == nullptr ? "" : words});
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t on_fence(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*, std::size_t,
                       char* data, std::size_t size, pmix_modex_cbfunc_t done, void* context) {
  std::string bytes(data == nullptr ? "" : data, data == nullptr ? 0 : size);
  std::free(data);  // ours from the call on
  return gather("fence", procs, count, std::move(bytes), [done, context](MpiMessage message) {
    give_modex(done, context, PMIX_SUCCESS, std::move(message.data));
  });
}

constexpr char kConnect[] = "connect";
constexpr char kDisconnect[] = "disconnect";

template <const char* key>
pmix_status_t on_meeting(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*,
                         std::size_t, pmix_op_cbfunc_t done, void* context) {
  return gather(key, procs, count, {},
                [done, context](const MpiMessage&) { done(PMIX_SUCCESS, context); });
}

pmix_status_t on_modex_wanted(const pmix_proc_t* proc, const pmix_info_t*, std::size_t,
                              pmix_modex_cbfunc_t done, void* context) {
  if (server->job != proc->nspace) return PMIX_ERR_NOT_FOUND;
  return ask({.op = MpiOp::kFetch, .ranks = {proc->rank}}, [done, context](MpiMessage message) {
    give_modex(done, context, status_of(message.status), std::move(message.data));
  });
}

PmixPending::Reply reply_by(pmix_op_cbfunc_t done, void* context) {
  return [done, context](const MpiMessage& message) { done(status_of(message.status), context); };
}

pmix_status_t on_publish(const pmix_proc_t* proc, const pmix_info_t* infos, std::size_t count,
                         pmix_op_cbfunc_t done, void* context) {
  return ask(
      {.op = MpiOp::kPublish, .ranks = {proc->rank}, .entries = packed_names(*proc, infos, count)},
      reply_by(done, context));
}

pmix_status_t on_unpublish(const pmix_proc_t* proc, char** keys, const pmix_info_t*, std::size_t,
                           pmix_op_cbfunc_t done, void* context) {
  return ask({.op = MpiOp::kUnpublish, .ranks = {proc->rank}, .entries = names_in(keys)},
             reply_by(done, context));
}

pmix_status_t on_lookup(const pmix_proc_t*, char** keys, const pmix_info_t* infos,
                        std::size_t count, pmix_lookup_cbfunc_t done, void* context) {
  const LookupTerms terms = lookup_terms(infos, count);
  return ask(
      {.op = MpiOp::kLookup, .status = terms.waits ? 1 : 0, .entries = names_in(keys)},
      [done, context](const MpiMessage& answer) {
        FoundNames found(server->job, answer.entries);
        done(status_of(answer.status), found.data(), found.size(), context);
      },
      terms.waits ? terms.limit : std::nullopt);
}

// Processes beyond the job's own would be nobody's ranks.
pmix_status_t on_spawn(const pmix_proc_t*, const pmix_info_t*, std::size_t, const pmix_app_t*,
                       std::size_t, pmix_spawn_cbfunc_t, void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}

pmix_status_t on_register_events(pmix_status_t*, std::size_t, const pmix_info_t*, std::size_t,
                                 pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_status_t on_deregister_events(pmix_status_t*, std::size_t, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

pmix_server_module_t server_functions() {
  pmix_server_module_t module{};
  module.client_connected = tell_of<MpiOp::kConnected>;
  module.client_finalized = tell_of<MpiOp::kFinalized>;
  module.abort = on_abort;
  module.fence_nb = on_fence;
  module.direct_modex = on_modex_wanted;
  module.publish = on_publish;
  module.lookup = on_lookup;
  module.unpublish = on_unpublish;
  module.spawn = on_spawn;
  module.connect = on_meeting<kConnect>;
  module.disconnect = on_meeting<kDisconnect>;
  module.register_events = on_register_events;
  module.deregister_events = on_deregister_events;
  return module;
}

// Another node's rank wants to know how to reach one of ours.
void answer_fetch(const MpiMessage& message) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, server->job.c_str(), message.ranks.at(0));
  auto id = std::make_unique<std::uint64_t>(message.id);
  const auto done = [](pmix_status_t status, char* data, std::size_t size, void* owned) {
    const std::unique_ptr<std::uint64_t> asked(static_cast<std::uint64_t*>(owned));
    const bool is_good = status == PMIX_SUCCESS && data != nullptr;
    server->send({.op = MpiOp::kAnswer,
                  .id = *asked,
                  .status = status == PMIX_SUCCESS ? kMpiGood : kMpiNotFound,
                  .data = is_good ? std::string(data, size) : std::string()});
  };
  if (PMIx_server_dmodex_request(&proc, done, id.get()) == PMIX_SUCCESS) {
    (void)id.release();
  } else {
    server->send({.op = MpiOp::kAnswer, .id = message.id, .status = kMpiNotFound});
  }
}

void check_environment(const MpiOrder& order, const std::vector<MpiEntry>& given) {
  pmix_proc_t proc;
  PMIX_LOAD_PROCID(&proc, order.name.c_str(), order.ranks_of(order.node).at(0));
  char** wanted = nullptr;
  check_pmix(PMIx_server_setup_fork(&proc, &wanted), "name the environment of a rank");
  for (char** entry = wanted; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name == "PMIX_VERSION") continue;
    const auto same = [&](const MpiEntry& variable) {
      return variable.key == name && variable.value == text.substr(equals + 1);
    };
    if (std::none_of(given.begin(), given.end(), same)) {
      throw SystemError("this version of libpmix (" + std::string(PMIx_Get_version()) +
                            ") wants ranks to have " + text +
                            ", which the launcher does not give them; start the program with "
                            "mpiexec, or install the libpmix that the launcher was built for",
                        EPROTO);
    }
  }
}

}  // namespace

void start_pmix_server(const MpiOrder& order, const std::string& directory,
                       const std::vector<MpiEntry>& given, PmixSend send) {
  server = new Server{order.name, std::move(send), {}};
  // In memory and over the socket: no files, no locks that a killed rank could leave held.
  setenv("PMIX_MCA_gds", "hash", 1);
  static pmix_server_module_t module = server_functions();
  PmixInfos infos;
  infos.add(PMIX_HOSTNAME, order.node_names[order.node]);
  infos.add(PMIX_SERVER_TMPDIR, directory);
  infos.add(PMIX_SYSTEM_TMPDIR, directory);
  infos.add(PMIX_SERVER_NSPACE, order.name + "-server");
  infos.add_rank(PMIX_SERVER_RANK, order.node);
  infos.add_flag(PMIX_TCP_DISABLE_IPV6);
  check_pmix(PMIx_server_init(&module, infos.data(), infos.size()), "start");
  if (!handoff_is_in_use()) {
    throw SystemError("libpmix does not listen in the way that the launcher knows", EPROTO);
  }
  register_job(order, directory);
  check_environment(order, given);
}

void handle_for_pmix(MpiMessage message) {
  PmixPending::Reply reply;
  switch (message.op) {
    case MpiOp::kGathered:
      reply = server->pending.take_fence(message.key, message.ranks);
      break;
    case MpiOp::kAnswer:
      reply = server->pending.take(message.id);
      break;
    case MpiOp::kFetch:
      return answer_fetch(message);
    default:
      throw SystemError("MPI messages: operation " +
                            std::to_string(static_cast<unsigned>(message.op)) +
                            " is not for a helper",
                        EPROTO);
  }
  if (reply) reply(std::move(message));
}

std::optional<std::chrono::milliseconds> expire_pmix_lookups() {
  for (const auto& [id, reply] : server->pending.take_expired()) {
    server->send({.op = MpiOp::kForget, .id = id});
    reply({.op = MpiOp::kAnswer, .id = id, .status = -1});
  }
  return server->pending.next_limit();
}

}  // namespace chainmail::launch
