// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.*, the part that makes groups and asks about them: for programs that only
// open the library, and for Python, since the library has no Python bindings.

#include <chainmail/backend.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/engine/callbacks/user_code.h"
#include "plugin/c10d/make_backend.h"
#include "plugin/job/job_connection.h"

namespace chainmail::internal {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// Gives a group that somebody else made our backend.
void attach_group(const GroupPtr& group, const std::string& group_name, const std::string& options,
                  const std::vector<std::int64_t>& global_ranks) {
  BackendOptions parsed = parse_backend_options(options);
  parsed.group_name = group_name;
  parsed.global_ranks.assign(global_ranks.begin(), global_ranks.end());
  set_backend(*group, make_backend(group->getStore(), group->getRank(), group->getSize(), parsed));
}

void attach(const std::string& group_name, const std::string& options) {
  attach_group(c10d::resolve_process_group(group_name), group_name, options, {});
}

// A registered group over all ranks of the job, for programs that know nothing of c10d.
GroupPtr make_group(const std::string& group_name, const std::string& options) {
  BackendOptions parsed = parse_backend_options(options);
  parsed.group_name = group_name;
  return make_process_group(parsed);
}

// Rank, size and store of the job that this process belongs to. A group without a backend carries
// them, since operators can return groups but not stores.
GroupPtr join_job(std::int64_t timeout_ms) {
  TORCH_CHECK(timeout_ms > 0, "chainmail: a timeout must be positive, got ", timeout_ms, " ms");
  const JobInfo& info = job_connection().info;
  return c10::make_intrusive<c10d::ProcessGroup>(
      make_job_store(std::chrono::milliseconds(timeout_ms)), info.rank, info.size);
}

std::vector<std::int64_t> ranks_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& timeout) {
    return {timeout.missing_ranks().begin(), timeout.missing_ranks().end()};
  } catch (const PeerError& peer) {
    if (peer.peer_rank() >= 0) return {peer.peer_rank()};
  } catch (...) {
  }
  return {};
}

// Kind, message and ranks of the error that killed the group; an empty kind while it is alive.
std::tuple<std::string, std::string, std::vector<std::int64_t>> failure(const GroupPtr& group) {
  const std::exception_ptr error = backend_of(*group)->error();
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {to_string(known.code()), known.what(), ranks_of(error)};
  } catch (const std::exception& other) {
    return {"Error", other.what(), {}};
  }
}

// For an interpreter that ends: from now on no thread of ours runs callbacks, frees tensors or asks
// stores written in Python.
// False when some have not ended within `timeout_ms`.
bool end_callbacks(std::int64_t timeout_ms) {
  return ops::UserCodeGate::close(std::chrono::milliseconds(timeout_ms));
}

}  // namespace

TORCH_LIBRARY(chainmail, library) {  // the other files here add theirs
  library.def("attach(str group_name, str options) -> ()", &attach);
  const std::string group = "__torch__.torch.classes.c10d.ProcessGroup";
  library.def(("attach_group(" + group +
               " group, str group_name, str options, int[] global_ranks=[]) -> ()")
                  .c_str(),
              &attach_group);
  library.def(("make_group(str group_name, str options) -> " + group).c_str(), &make_group);
  library.def(("join_job(int timeout_ms) -> " + group).c_str(), &join_job);
  library.def("end_callbacks(int timeout_ms) -> bool", &end_callbacks);
  library.def(("failure(" + group + " group) -> (str, str, int[])").c_str(), &failure);
}

}  // namespace chainmail::internal
