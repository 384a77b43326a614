// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.*: all-reduces by name of algorithm on any registered process group of ours,
// found after linking or after a plain dlopen of the library. They block until the result is there.
// Beside them, what Python needs to make our groups, since the library has no Python bindings.

#include <ATen/ATen.h>
#include <chainmail/backend.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin/c10d/make_backend.h"
#include "plugin/job/job_connection.h"

namespace chainmail::internal {
namespace {

struct Variant {
  std::optional<ops::Algorithm> algorithm;
  std::optional<ops::WireFormat> wire;
};

constexpr Variant kAsGroup{std::nullopt, std::nullopt};
constexpr Variant kHierarchical{ops::Algorithm::kHierarchical, std::nullopt};
constexpr Variant kTwoDimensional{ops::Algorithm::kTwoDimensional, std::nullopt};
constexpr Variant kFp16{ops::Algorithm::kHierarchical, ops::WireFormat::kFloat16};

template <const Variant& kVariant>
void all_reduce_in_place(const at::Tensor& input, const std::string& reduce_op,
                         const std::string& group_name) {
  find_backend(group_name)
      ->all_reduce(input, ops::parse_reduce_op(reduce_op), kVariant.algorithm, kVariant.wire);
}

template <const Variant& kVariant>
at::Tensor all_reduce(const at::Tensor& input, const std::string& reduce_op,
                      const std::string& group_name) {
  at::Tensor output = input.clone(at::MemoryFormat::Contiguous);
  all_reduce_in_place<kVariant>(output, reduce_op, group_name);
  return output;
}

void all_reduce_in_place_meta(const at::Tensor& /*input*/, const std::string& /*reduce_op*/,
                              const std::string& /*group_name*/) {}

at::Tensor all_reduce_meta(const at::Tensor& input, const std::string& /*reduce_op*/,
                           const std::string& /*group_name*/) {
  return at::empty_like(input, input.options(), at::MemoryFormat::Contiguous);
}

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// Gives a group that somebody else made our backend.
void attach_group(const GroupPtr& group, const std::string& group_name,
                  const std::string& options) {
  BackendOptions parsed = parse_backend_options(options);
  parsed.group_name = group_name;
  set_backend(*group, make_backend(group->getStore(), group->getRank(), group->getSize(), parsed));
}

void attach(const std::string& group_name, const std::string& options) {
  attach_group(c10d::resolve_process_group(group_name), group_name, options);
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

}  // namespace

TORCH_LIBRARY(chainmail, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  for (const std::string name :
       {"all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce", "fp16_all_reduce"}) {
    library.def((name + "_(Tensor(a!) input, str reduce_op, str group_name) -> ()").c_str(), tags);
    library.def((name + "(Tensor input, str reduce_op, str group_name) -> Tensor").c_str(), tags);
  }
  library.def("attach(str group_name, str options) -> ()", &attach);
  const std::string group = "__torch__.torch.classes.c10d.ProcessGroup";
  library.def(("attach_group(" + group + " group, str group_name, str options) -> ()").c_str(),
              &attach_group);
  library.def(("make_group(str group_name, str options) -> " + group).c_str(), &make_group);
  library.def(("join_job(int timeout_ms) -> " + group).c_str(), &join_job);
  library.def(("failure(" + group + " group) -> (str, str, int[])").c_str(), &failure);
}

TORCH_LIBRARY_IMPL(chainmail, CPU, library) {
  library.impl("all_reduce_", &all_reduce_in_place<kAsGroup>);
  library.impl("all_reduce", &all_reduce<kAsGroup>);
  library.impl("hierarchical_all_reduce_", &all_reduce_in_place<kHierarchical>);
  library.impl("hierarchical_all_reduce", &all_reduce<kHierarchical>);
  library.impl("two_dimensional_all_reduce_", &all_reduce_in_place<kTwoDimensional>);
  library.impl("two_dimensional_all_reduce", &all_reduce<kTwoDimensional>);
  library.impl("fp16_all_reduce_", &all_reduce_in_place<kFp16>);
  library.impl("fp16_all_reduce", &all_reduce<kFp16>);
}

TORCH_LIBRARY_IMPL(chainmail, Meta, library) {
  for (const std::string name :
       {"all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce", "fp16_all_reduce"}) {
    library.impl((name + "_").c_str(), &all_reduce_in_place_meta);
    library.impl(name.c_str(), &all_reduce_meta);
  }
}

}  // namespace chainmail::internal
