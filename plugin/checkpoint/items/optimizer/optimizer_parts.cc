// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include "plugin/train/optimizer/optimizer_state.h"
#include "plugin/train/optimizer/state_members.h"
#include "plugin/train/sharding/state/parameter_state.h"

namespace chainmail::internal {

namespace {

namespace optim = torch::optim;

using Condition = std::function<bool(const at::Tensor&)>;

bool never(const at::Tensor& /*parameter*/) { return false; }

template <typename State>
void save_states(optim::Optimizer& optimizer, CheckpointState& saved,
                 const Condition& is_left_out = never) {
  for_each_parameter(optimizer, [&](const std::string& prefix, const at::Tensor& parameter) {
    if (is_left_out(parameter)) return;
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;
    const auto save = [&]<typename Member>(const char* name, const Member& member) {
      if constexpr (!std::is_same_v<Member, at::Tensor>) {
        saved.set_integer(prefix + name, member);
      } else if (member.defined()) {
        saved.set_tensor(prefix + name, member);
      }
    };
    visit_members(static_cast<State&>(*found->second), save);
  });
}

template <typename State>
void load_states(const CheckpointState& saved, optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  optimizer.state().clear();
  for_each_parameter(optimizer, [&](const std::string& prefix, const at::Tensor& parameter) {
    if (!saved.has(prefix + "step")) return;
    auto state = std::make_unique<State>();
    const auto load = [&]<typename Member>(const char* name, Member& member) {
      if constexpr (!std::is_same_v<Member, at::Tensor>) {
        member = saved.integer(prefix + name);
      } else if (saved.has(prefix + name)) {
        member = laid_out_like(parameter, saved.tensor(prefix + name));
      }
    };
    visit_members(*state, load);
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  });
}

// Hyper-parameters, which schedules change; torch writes them, there are no tensors among them.
std::string options_key(std::size_t group) { return "group " + std::to_string(group) + "/options"; }

void save_options(optim::Optimizer& optimizer, CheckpointState& saved) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    torch::serialize::OutputArchive archive;
    optimizer.param_groups()[g].options().serialize(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    saved.set_text(options_key(g), std::move(stream).str());
  }
}

void load_options(const CheckpointState& saved, optim::Optimizer& optimizer) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const std::string bytes = saved.text(options_key(g));
    torch::serialize::InputArchive archive;
    archive.load_from(bytes.data(), bytes.size());
    optimizer.param_groups()[g].options().serialize(archive);
  }
}

std::string class_of(const optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

// "2 groups of 5 3 parameters"
std::string groups_of(optim::Optimizer& optimizer) {
  std::string text = std::to_string(optimizer.param_groups().size()) + " groups of";
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    text += ' ' + std::to_string(group.params().size());
  }
  return text + " parameters";
}

void expect_same(const CheckpointState& saved, const std::string& key, const std::string& now) {
  if (saved.text(key) != now) {
    throw CheckpointError("the checkpoint's optimizer has " + key + " " + saved.text(key) +
                          ", the program's " + now);
  }
}

constexpr const char* kLayout = "lies in memory as";

}  // namespace

void for_each_parameter(
    optim::Optimizer& optimizer,
    const std::function<void(const std::string& prefix, const at::Tensor& parameter)>& visit) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const std::vector<at::Tensor>& parameters = optimizer.param_groups()[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      visit("group " + std::to_string(g) + "/parameter " + std::to_string(i) + "/", parameters[i]);
    }
  }
}

at::Tensor laid_out_like(const at::Tensor& parameter, const at::Tensor& saved) {
  if (saved.sizes() != parameter.sizes()) {
    throw CheckpointError("the checkpoint's optimizer is for a parameter of shape " +
                          c10::str(saved.sizes()) + ", the program's has " +
                          c10::str(parameter.sizes()));
  }
  return at::empty_like(parameter,
                        parameter.options().dtype(saved.scalar_type()).requires_grad(false))
      .copy_(saved);
}

bool has_comparable_parts(const optim::Optimizer& optimizer) {
  return typeid(optimizer) == typeid(optim::SGD) || typeid(optimizer) == typeid(optim::Adam) ||
         typeid(optimizer) == typeid(optim::AdamW);
}

std::string describe_optimizer(optim::Optimizer& optimizer) {
  return class_of(optimizer) + " with " + groups_of(optimizer);
}

CheckpointState save_optimizer_parts(optim::Optimizer& optimizer) {
  if (is_marked_sliced(optimizer)) {
    throw InvalidArgument(
        "the state of this optimizer is shared among ranks (Sharding): add the "
        "multi-node optimizer to the checkpointer, not the optimizer that it wraps");
  }
  CheckpointState saved;
  saved.set_text("class", class_of(optimizer));
  saved.set_text("layout", groups_of(optimizer));
  if (typeid(optimizer) == typeid(optim::SGD)) {
    save_states<optim::SGDParamState>(optimizer, saved);
  } else if (typeid(optimizer) == typeid(optim::Adam)) {
    save_states<optim::AdamParamState>(optimizer, saved);
  } else if (typeid(optimizer) == typeid(optim::AdamW)) {
    save_states<optim::AdamWParamState>(optimizer, saved);
  } else {
    saved.set_text("archive", save_optimizer(optimizer));
    return saved;
  }
  save_options(optimizer, saved);
  return saved;
}

CheckpointState save_optimizer_without(optim::Optimizer& optimizer, const Condition& is_in_slices) {
  CheckpointState saved;
  saved.set_text("class", class_of(optimizer));
  saved.set_text("layout", groups_of(optimizer));
  with_state_type(optimizer,
                  [&]<typename State>() { save_states<State>(optimizer, saved, is_in_slices); });
  for_each_parameter(optimizer, [&](const std::string& prefix, const at::Tensor& parameter) {
    if (!is_in_slices(parameter)) return;
    save_layout(saved, prefix, {parameter.sizes().vec(), parameter.strides().vec()});
  });
  save_options(optimizer, saved);
  return saved;
}

namespace {

// Whether what has these strides fills its memory without gaps and overlaps.
bool is_dense(const MemoryLayout& layout) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride and size
  for (std::size_t d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] < 0) return false;
    if (layout.sizes[d] != 1) dimensions.emplace_back(layout.strides[d], layout.sizes[d]);
  }
  if (std::ranges::count(layout.sizes, 0) != 0) return true;
  std::ranges::sort(dimensions);
  std::int64_t expected = 1;
  return std::ranges::all_of(dimensions, [&](const auto& dimension) {
    return dimension.first == expected &&
           !__builtin_mul_overflow(expected, dimension.second, &expected);
  });
}

}  // namespace

void save_layout(CheckpointState& state, const std::string& prefix, const MemoryLayout& layout) {
  state.set_tensor(prefix + kLayout, at::stack({at::tensor(layout.sizes, c10::kLong),
                                                at::tensor(layout.strides, c10::kLong)}));
}

std::optional<MemoryLayout> saved_layout(const CheckpointState& state, const std::string& prefix) {
  if (!state.has(prefix + kLayout)) return std::nullopt;
  const at::Tensor layout = state.tensor(prefix + kLayout);
  if (layout.scalar_type() != c10::kLong || layout.dim() != 2 || layout.size(0) != 2) {
    throw CheckpointError("'" + prefix + kLayout + "' in the checkpoint is no layout");
  }
  const auto* const sizes = layout.const_data_ptr<std::int64_t>();
  const auto* const strides = sizes + layout.size(1);
  MemoryLayout saved{{sizes, strides}, {strides, strides + layout.size(1)}};
  if (!is_dense(saved)) {
    throw CheckpointError("'" + prefix + kLayout + "' in the checkpoint, sizes " +
                          c10::str(c10::IntArrayRef(saved.sizes)) + " with strides " +
                          c10::str(c10::IntArrayRef(saved.strides)) +
                          ", is no layout without gaps and overlaps");
  }
  return saved;
}

void save_unusual_layout(CheckpointState& state, const std::string& prefix,
                         const MemoryLayout& layout) {
  if (layout != contiguous_layout(layout.sizes)) save_layout(state, prefix, layout);
}

MemoryLayout saved_unusual_layout(const CheckpointState& state, const std::string& prefix,
                                  const MemoryLayout& now) {
  std::optional<MemoryLayout> saved = saved_layout(state, prefix);
  if (!saved) return contiguous_layout(now.sizes);
  if (saved->sizes == now.sizes) return *std::move(saved);
  throw CheckpointError("'" + prefix + "' in the checkpoint is of shape " +
                        c10::str(c10::IntArrayRef(saved->sizes)) + ", in the program of " +
                        c10::str(c10::IntArrayRef(now.sizes)));
}

void load_optimizer_parts(const CheckpointState& saved, optim::Optimizer& optimizer) {
  expect_same(saved, "class", class_of(optimizer));
  expect_same(saved, "layout", groups_of(optimizer));
  const bool is_known = !saved.has("archive") && with_state_type(optimizer, [&]<typename State>() {
    load_states<State>(saved, optimizer);
  });
  if (is_known) {
    load_options(saved, optimizer);
  } else {
    load_optimizer(saved.text("archive"), optimizer);
  }
}

}  // namespace chainmail::internal
