// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/parameter_list.h"

#include <algorithm>
#include <array>
#include <span>
#include <sstream>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Type.h>

#include "base/bytes.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/sharding/slice_memory.h"

namespace chainmail::internal {

namespace {

std::string describe(const NamedTensor& named) {
  std::ostringstream text;
  text << named.name << ' ' << named.tensor.sizes() << ' '
       << c10::toString(named.tensor.scalar_type());
  if (!named.tensor.is_contiguous()) text << " strides " << named.tensor.strides();
  return text.str();
}

// Of each rank its host, then its lines. `numbers` are those of the ranks in the job.
std::string describe_difference(const std::vector<std::vector<std::string>>& ranks,
                                const std::vector<int>& numbers) {
  const std::vector<std::string>& first = ranks.front();
  const auto line_of = [](const std::vector<std::string>& lines, std::size_t i) {
    return i < lines.size() ? "'" + lines[i] + "'" : std::string("nothing there");
  };
  std::size_t best_line = 0;
  std::string differs;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::vector<std::string>& other = ranks[r];
    std::size_t i = 1;
    while (i < std::max(first.size(), other.size()) && line_of(first, i) == line_of(other, i)) ++i;
    if (i < std::max(first.size(), other.size()) && (differs.empty() || i < best_line)) {
      best_line = i;
      differs = "rank " + std::to_string(numbers.at(0)) + " on " + first.at(0) + " has " +
                line_of(first, i) + ", rank " + std::to_string(numbers.at(r)) + " on " +
                other.at(0) + " has " + line_of(other, i);
    }
  }
  if (best_line < first.size() && first[best_line].starts_with(kOptionLine)) {
    return "ranks do not train with the same options: " + differs +
           ". Every rank must give the same";
  }
  return "ranks do not train the same model: the first difference is entry " +
         std::to_string(best_line - 1) + ": " + differs +
         ". Every rank must build the same layers in the same order";
}

// The first line of `lines` that `others` lacks, in quotes; empty when there is none. Options do
// not change, but for what comes of them in a job that has begun local steps.
std::string first_new(const std::vector<std::string>& lines,
                      const std::vector<std::string>& others) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return !line.starts_with(kOptionLine) &&
           std::find(others.begin(), others.end(), line) == others.end();
  });
  return found == lines.end() ? "" : "'" + *found + "'";
}

// "(the training state, now with 'parameter 1.bias [4] Float frozen')"; equal for the engine.
Label label_of_state(const std::vector<std::string>& lines, const std::vector<std::string>& last) {
  std::string text = "the training state";
  Label label = label_of(text);
  if (last.empty()) return label;
  if (const std::string added = first_new(lines, last); !added.empty()) {
    text += ", now with " + added;
  } else if (const std::string gone = first_new(last, lines); !gone.empty()) {
    text += ", no longer with " + gone;
  }
  label.describe = [kept = std::move(text)] { return "(" + kept + ")"; };
  return label;
}

std::span<const torch::optim::OptimizerParamGroup> groups_of(
    const torch::optim::Optimizer* optimizer) {
  return optimizer == nullptr ? std::span<const torch::optim::OptimizerParamGroup>()
                              : optimizer->param_groups();
}

}  // namespace

std::vector<NamedTensor> collect_parameters(const ModuleRef& model,
                                            const torch::optim::Optimizer* optimizer) {
  std::vector<NamedTensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](std::string name, const at::Tensor& tensor) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      refuse_slice(name, tensor, "averaging gradients",
                   "backward() has averaged its: step an optimizer of torch's");
      result.push_back({std::move(name), tensor});
    }
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  const auto groups = groups_of(optimizer);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<at::Tensor>& params = groups[g].params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      add("param_groups[" + std::to_string(g) + "][" + std::to_string(i) + "]", params[i]);
    }
  }
  return result;
}

std::vector<NamedTensor> collect_buffers(const ModuleRef& model) {
  std::vector<NamedTensor> result;
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) {
      result.push_back({item.key(), item.value()});
    }
  }
  return result;
}

std::vector<std::uintptr_t> parameter_signature(const ModuleRef& model,
                                                const torch::optim::Optimizer* optimizer) {
  std::vector<std::uintptr_t> words;
  const auto add = [&](const at::Tensor& tensor) {
    words.push_back(reinterpret_cast<std::uintptr_t>(tensor.unsafeGetTensorImpl()));
    words.push_back(tensor.defined()
                        ? static_cast<std::uintptr_t>(tensor.scalar_type()) * 2 +
                              static_cast<std::uintptr_t>(tensor.requires_grad() ? 1 : 0)
                        : 0);
    if (!tensor.defined()) return;
    const c10::Device device = tensor.device();
    words.push_back((static_cast<std::uintptr_t>(device.type()) << 8) |
                    static_cast<std::uint8_t>(device.index()));
    words.push_back(static_cast<std::uintptr_t>(tensor.dim()));
    for (const std::int64_t size : tensor.sizes()) {
      words.push_back(static_cast<std::uintptr_t>(size));
    }
  };
  for (const at::Tensor& tensor : model.parameters()) add(tensor);
  for (const torch::optim::OptimizerParamGroup& group : groups_of(optimizer)) {
    for (const at::Tensor& tensor : group.params()) add(tensor);
  }
  return words;
}

std::vector<std::string> describe_training_state(const std::vector<NamedTensor>& parameters,
                                                 const std::vector<NamedTensor>& buffers,
                                                 const torch::optim::Optimizer* optimizer) {
  std::vector<std::string> lines;
  for (const NamedTensor& named : parameters) {
    lines.push_back("parameter " + describe(named) +
                    (named.tensor.requires_grad() ? "" : " frozen"));
  }
  for (const NamedTensor& named : buffers) lines.push_back("buffer " + describe(named));
  for (const torch::optim::OptimizerParamGroup& group : groups_of(optimizer)) {
    lines.push_back("optimizer " + c10::demangle(typeid(*optimizer).name()) + " with a group of " +
                    std::to_string(group.params().size()) + " parameters");
  }
  return lines;
}

const NamedTensor* find_on_other_device(const std::vector<NamedTensor>& parameters) {
  const auto found = std::ranges::find_if(parameters, [&](const NamedTensor& parameter) {
    return parameter.tensor.device() != parameters.front().tensor.device();
  });
  return found == parameters.end() ? nullptr : &*found;
}

c10::Device device_of(const std::vector<NamedTensor>& parameters) {
  const NamedTensor& first = parameters.front();
  if (const NamedTensor* const other = find_on_other_device(parameters)) {
    throw InvalidArgument("parameter '" + other->name + "' is on " + other->tensor.device().str() +
                          " and '" + first.name + "' on " + first.tensor.device().str() +
                          "; a rank trains on one device");
  }
  return first.tensor.device();
}

void describe_devices(const std::vector<NamedTensor>& tensors, std::vector<std::string>& lines) {
  for (const NamedTensor& named : tensors) {
    if (named.tensor.is_cpu()) continue;
    const c10::DeviceType type = named.tensor.device().type();
    lines.push_back("parameter '" + named.name + "' on " + c10::DeviceTypeName(type, true));
  }
}

void check_receivable(const char* kind, const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& named : tensors) {
    std::string reason = why_not_dense(named.tensor);
    if (reason.empty()) reason = why_not_writable(named.tensor);
    if (reason.empty() && named.tensor.requires_grad() && named.tensor.is_complex()) {
      reason = "is complex, and such gradients cannot be averaged; keep torch::view_as_real of it";
    }
    if (!reason.empty()) throw InvalidArgument(kind + (" '" + named.name + "' ") + reason);
  }
}

void refuse_changed(const std::string& name, const std::string& was, const std::string& now) {
  throw InvalidArgument("parameter '" + name + "' is " + now + " now, and was " + was +
                        " when a sharded optimizer cut its state into slices: give it back what it "
                        "was, or put a new parameter in its place, in the model and in the "
                        "optimizer's group");
}

void compare_between_ranks(Communicator& communicator, const std::vector<std::string>& lines,
                           const std::vector<std::string>& last) {
  communicator.impl().check_usable();
  const std::uint64_t hash = hash64(to_bytes(lines));
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(communicator.size()));
  all_gather(*communicator.impl().group, &hash, hashes.data(), sizeof hash,
             label_of_state(lines, last));
  if (std::ranges::count(hashes, hashes.front()) == communicator.size()) return;
  std::vector<std::string> own{communicator.impl().world->host()};
  own.insert(own.end(), lines.begin(), lines.end());
  fail_on_all_ranks(communicator, describe_difference(communicator.allgather_obj(own),
                                                      communicator.impl().world_ranks));
}

}  // namespace chainmail::internal
