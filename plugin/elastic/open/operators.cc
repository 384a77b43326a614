// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.classes.chainmail.ElasticMember and its operators: what chainmail.elastic, in Python, is
// made of, since the library has no Python bindings. torch releases the interpreter's lock during a
// call.

#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "plugin/c10d/make_backend.h"
#include "plugin/elastic/open/open_member.h"
#include "plugin/job/world.h"

namespace chainmail::internal {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.device().is_cpu() && tensor.scalar_type() == at::kByte && tensor.is_contiguous(),
      "chainmail: bytes are a contiguous uint8 tensor on the CPU");
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          static_cast<std::size_t>(tensor.numel())};
}

at::Tensor tensor_of(std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  const auto size = static_cast<std::int64_t>(owner->size());
  if (size == 0) return at::empty({0}, at::kByte);
  return at::from_blob(
      owner->data(), {size}, [owner](void* /*data*/) {}, at::kByte);
}

class ElasticMemberHandle final : public torch::CustomClassHolder {
 public:
  enum Next : std::int64_t { kNothing = 0, kStep = 1, kWorld = 2, kEnd = 3 };

  void announce(const std::string& description, std::int64_t step) {
    member_.announce(description, static_cast<std::uint64_t>(step));
  }

  std::int64_t wait(std::int64_t limit_ms) {
    switch (member_.wait(std::chrono::milliseconds(limit_ms))) {
      case ElasticMember::Next::kStep:
        return kStep;
      case ElasticMember::Next::kWorld:
        return kWorld;
      case ElasticMember::Next::kEnd:
        return kEnd;
      case ElasticMember::Next::kRepeat:  // of jobs with callbacks only
      case ElasticMember::Next::kNothing:
        break;
    }
    return kNothing;
  }

  std::int64_t generation() const { return member_.generation(); }
  std::int64_t rank() const { return member_.world().rank(); }
  std::int64_t size() const { return member_.world().size(); }
  std::int64_t number_of(std::int64_t rank) const {
    return member_.world().number_of(static_cast<int>(rank));
  }

  void enter() { member_.enter(); }
  bool is_donor() const { return member_.is_donor(); }
  bool has_transfer() const { return member_.has_transfer(); }
  at::Tensor transfer(const at::Tensor& own) { return tensor_of(member_.transfer(bytes_of(own))); }
  bool begins_anew() const { return member_.begins_anew(); }
  void on_loading() { member_.on_loading(); }
  void begun(std::int64_t step) { member_.begun(static_cast<std::uint64_t>(step)); }

  // Gives a group that torch makes our backend, as attach_group() does in jobs of fixed size.
  void attach_group(const GroupPtr& group, const std::string& group_name,
                    const std::string& options, const std::vector<std::int64_t>& ranks) {
    BackendOptions parsed = parse_backend_options(options);
    parsed.group_name = group_name;
    for (const std::int64_t rank : ranks) {
      parsed.global_ranks.push_back(member_.world().number_of(static_cast<int>(rank)));
    }
    auto made = member_.make_group({ranks.begin(), ranks.end()}, engine_options(parsed));
    attach_engine_group(*group, std::move(made.group), std::move(made.rendezvous), parsed);
  }

  std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& own) {
    return member_.gather(own);
  }
  bool wants_change() const { return member_.wants_change(); }
  void commit(bool wants_change) { member_.commit(wants_change); }
  void returned(bool is_finished) { member_.returned(is_finished); }
  bool is_finished() const { return member_.is_finished(); }
  bool is_world_over() { return member_.is_world_over(); }

 private:
  OpenMember member_;
};

// Joins the job.
bool is_elastic() { return is_in_elastic_job(); }

std::int64_t digest(const at::Tensor& bytes) {
  return static_cast<std::int64_t>(hash64(bytes_of(bytes)));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(chainmail, library) {
  library.def("is_elastic() -> bool", &is_elastic);
  library.def("require_fixed_size() -> ()", &require_fixed_size);
  library.def("digest(Tensor bytes) -> int", &digest);
  library.class_<ElasticMemberHandle>("ElasticMember")
      .def(torch::init<>())
      .def("announce", &ElasticMemberHandle::announce)
      .def("wait", &ElasticMemberHandle::wait)
      .def("generation", &ElasticMemberHandle::generation)
      .def("rank", &ElasticMemberHandle::rank)
      .def("size", &ElasticMemberHandle::size)
      .def("number_of", &ElasticMemberHandle::number_of)
      .def("enter", &ElasticMemberHandle::enter)
      .def("is_donor", &ElasticMemberHandle::is_donor)
      .def("has_transfer", &ElasticMemberHandle::has_transfer)
      .def("transfer", &ElasticMemberHandle::transfer)
      .def("begins_anew", &ElasticMemberHandle::begins_anew)
      .def("on_loading", &ElasticMemberHandle::on_loading)
      .def("begun", &ElasticMemberHandle::begun)
      .def("attach_group", &ElasticMemberHandle::attach_group)
      .def("gather", &ElasticMemberHandle::gather)
      .def("wants_change", &ElasticMemberHandle::wants_change)
      .def("commit", &ElasticMemberHandle::commit)
      .def("returned", &ElasticMemberHandle::returned)
      .def("is_finished", &ElasticMemberHandle::is_finished)
      .def("is_world_over", &ElasticMemberHandle::is_world_over);
}

}  // namespace chainmail::internal
