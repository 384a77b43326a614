// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <exception>
#include <functional>
#include <unordered_set>
#include <utility>

#include <chainmail/nn/sharded.h>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <chainmail/error.h>

#include "plugin/job/torch_group.h"
#include "plugin/nn/parallel/exchange_node.h"
#include "plugin/nn/sharded/unit_set.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/gradient_hooks.h"
#include "plugin/train/sharding/memory_ties.h"

namespace chainmail {

namespace nn = torch::nn;

using internal::ExchangeRecord;
using internal::NamedTensor;
using internal::Unit;
using internal::UnitCall;
using internal::UnitSet;

namespace {

// What stands for a module inside another: the same names, and slices for parameters.
class Shadow final : public nn::Module {
 public:
  using nn::Module::Module;
};

struct Contents {
  std::vector<NamedTensor> own;
  std::vector<std::shared_ptr<Unit>> lenders;  ///< of tied weights
  std::vector<NamedTensor> buffers;
};

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + '.' + name;
}

void add_lender(Contents& contents, std::shared_ptr<Unit> unit) {
  for (const auto& known : contents.lenders) {
    if (known == unit) return;
  }
  contents.lenders.push_back(std::move(unit));
}

void collect(const nn::Module& module, const std::string& path, const UnitSet& set,
             Contents& contents) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (!item.value().defined()) continue;
    if (auto unit = set.owner_of(item.value())) {
      add_lender(contents, std::move(unit));
      continue;
    }
    const auto is_this = [&](const NamedTensor& one) { return one.tensor.is_same(item.value()); };
    if (std::any_of(contents.own.begin(), contents.own.end(), is_this)) continue;
    contents.own.push_back({join(path, item.key()), item.value()});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) contents.buffers.push_back({join(path, item.key()), item.value()});
  }
  for (const auto& child : module.named_children()) {
    if (std::dynamic_pointer_cast<ShardedModule>(child.value())) continue;
    collect(*child.value(), join(path, child.key()), set, contents);
  }
}

at::Tensor slice_of(const at::Tensor& parameter, const UnitSet& set) {
  const std::shared_ptr<Unit> unit = set.owner_of(parameter);
  return unit->parameters()[unit->find(parameter).value()].slice;
}

class ShadowBuilder {
 public:
  explicit ShadowBuilder(const UnitSet& set) : set_(set) {}

  void build(const nn::Module& module, nn::Module& shadow) const {
    shadow.nn::Module::train(module.is_training());  // of itself alone: it has no children yet
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (!item.value().defined()) continue;
      const at::Tensor slice = slice_of(item.value(), set_);
      shadow.register_parameter(item.key(), slice, slice.requires_grad());
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      if (item.value().defined()) shadow.register_buffer(item.key(), item.value());
    }
    for (const auto& child : module.named_children()) {
      if (auto unit = std::dynamic_pointer_cast<ShardedModule>(child.value())) {
        shadow.register_module<nn::Module>(child.key(), std::move(unit));
      } else {
        build(*child.value(), *shadow.register_module(
                                  child.key(), std::make_shared<Shadow>(child.value()->name())));
      }
    }
  }

 private:
  const UnitSet& set_;
};

void check_communicator(const std::shared_ptr<Communicator>& communicator) {
  internal::require_communicator(communicator, "a Sharded module");
  communicator->impl().check_usable();
  if (communicator->impl().shards) {
    throw InvalidArgument(
        "a Sharded module in a job of shards, whose worlds change: use "
        "create_multi_node_optimizer() there");
  }
  if (internal::parse_torch_backend(communicator->name())) {
    throw InvalidArgument("a Sharded module needs Chainmail's own collectives, which '" +
                          communicator->name() + "' does not have; use \"hierarchical\"");
  }
}

void check_parameters(const std::string& unit, const Contents& contents) {
  const auto refuse = [&](const NamedTensor& parameter, const std::string& reason) {
    throw InvalidArgument("unit '" + unit + "': parameter '" + parameter.name + "' " + reason);
  };
  for (const NamedTensor& parameter : contents.own) {
    const at::Tensor& tensor = parameter.tensor;
    std::string reason = internal::why_not_dense_cpu(tensor);
    if (reason.empty()) reason = internal::why_not_writable(tensor);
    if (!reason.empty()) refuse(parameter, reason);
    if (!at::isFloatingType(tensor.scalar_type())) {
      refuse(parameter, std::string("is of type ") + c10::toString(tensor.scalar_type()) +
                            ", whose gradients cannot be averaged; make it a buffer");
    }
    if (tensor.scalar_type() != contents.own.front().tensor.scalar_type()) {
      refuse(parameter, std::string("is of type ") + c10::toString(tensor.scalar_type()) +
                            ", others of type " +
                            c10::toString(contents.own.front().tensor.scalar_type()) +
                            "; put them into Sharded modules of their own");
    }
  }
  if (contents.own.empty() && contents.lenders.empty()) {
    throw InvalidArgument("unit '" + unit + "' has no parameters; leave it as it is");
  }
}

// All ranks find that they have the same, and what is refused on all of them.
void compare_units(Communicator& communicator, const UnitSet& set, const std::string& unit,
                   const Contents& contents) {
  std::vector<std::string> lines =
      internal::describe_training_state(contents.own, contents.buffers, nullptr);
  lines.insert(lines.begin(), "unit '" + unit + "'");
  const std::string tie = set.find_tie(contents.own);
  if (!tie.empty()) lines.push_back(tie);
  const auto taken = std::ranges::find_if(contents.own, [](const NamedTensor& parameter) {
    return internal::taker_of(parameter.tensor) != nullptr;
  });
  if (taken != contents.own.end()) lines.push_back("'" + taken->name + "' of an optimizer");
  internal::compare_between_ranks(communicator, lines, {});
  if (!tie.empty()) {
    internal::refuse_memory_tie("unit '" + unit + "'", tie,
                                ", or clone() one where it is to have values of its own");
  }
  if (taken != contents.own.end()) {
    throw InvalidArgument("unit '" + unit + "': parameter '" + taken->name +
                          "' is averaged by a multi-node optimizer or a DistributedModel, which "
                          "would find no memory in it; end that first");
  }
  for (const NamedTensor& parameter : contents.own) {
    if (parameter.tensor.numel() == 0 || parameter.tensor.storage().nbytes() > 0) continue;
    throw InvalidArgument("unit '" + unit + "': parameter '" + parameter.name +
                          "' belongs to a Sharded module of another communicator");
  }
}

// Rank 0's.
void share_buffers(Communicator& communicator, const Contents& contents) {
  std::vector<at::Tensor> buffers;
  for (const NamedTensor& buffer : contents.buffers) buffers.push_back(buffer.tensor);
  communicator.bcast(buffers);
}

bool lies_in_unit(const at::Tensor& tensor, const UnitCall& call) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  return std::any_of(call.units.begin(), call.units.end(), [&](const auto& unit) {
    return tensor.is_alias_of(unit->parameters().front().full);
  });
}

// The parameters of `unit` whose gradients backward from `results` ends with; none if it comes to
// anything else. What lies between has run when these have come: it leads to one of them.
std::vector<std::size_t> last_gradients_of(const std::vector<at::Tensor*>& results,
                                           const Unit& unit) {
  using torch::autograd::AccumulateGrad;
  using torch::autograd::Node;
  std::vector<std::size_t> found;
  std::unordered_set<const Node*> seen;
  std::vector<torch::autograd::Edge> roots;  // keep nodes that nothing else does
  std::vector<Node*> open;
  for (const at::Tensor* const result : results) {
    roots.push_back(torch::autograd::impl::gradient_edge(*result));
    open.push_back(roots.back().function.get());
  }
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (const auto* const leaf = dynamic_cast<const AccumulateGrad*>(node)) {
      const auto parameter = unit.find(leaf->variable);
      if (!parameter) return {};
      found.push_back(*parameter);
      continue;
    }
    const std::size_t others = open.size();
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) open.push_back(edge.function.get());
    }
    if (open.size() == others) return {};
  }
  return found;
}

// The same values in the same memory, behind a node that runs `reached` when backward comes there.
void put_node(const char* name, const std::vector<at::Tensor*>& tensors,
              std::function<void()> reached) {
  ExchangeRecord record{
      .name = name,
      .arguments = {},
      .results = {},
      .have_gradients = {},
      .backward = [reached = std::move(reached)](const std::vector<at::Tensor>& gradients) {
        reached();
        return gradients;
      }};
  for (const at::Tensor* const tensor : tensors) {
    record.arguments.push_back(*tensor);
    record.results.push_back(tensor->detach());
    record.have_gradients.push_back(true);
  }
  const internal::Exchanged exchanged = internal::record_exchange({}, std::move(record));
  for (std::size_t i = 0; i < tensors.size(); ++i) *tensors[i] = exchanged.results[i];
}

std::vector<at::Tensor*> with_gradient(const std::vector<at::Tensor*>& tensors) {
  std::vector<at::Tensor*> needed;
  for (at::Tensor* const tensor : tensors) {
    if (internal::needs_gradient(*tensor)) needed.push_back(tensor);
  }
  return needed;
}

}  // namespace

namespace internal {

ShardedScope::ShardedScope(std::shared_ptr<UnitCall> call)
    : call_(std::move(call)), exceptions_at_start_(std::uncaught_exceptions()) {
  call_->set->begin_forward(*call_);
}

ShardedScope::~ShardedScope() {
  call_->set->end_forward(*call_, std::uncaught_exceptions() > exceptions_at_start_);
}

void ShardedScope::take_arguments(const std::vector<at::Tensor*>& tensors) {
  const std::vector<at::Tensor*> needed = with_gradient(tensors);
  if (needed.empty()) return;
  call_->has_entry = true;
  put_node("leave_unit", needed, [call = call_] { call->set->leave_backward(*call); });
}

void ShardedScope::take_results(const std::vector<at::Tensor*>& tensors) {
  for (const at::Tensor* const tensor : tensors) {
    if (!lies_in_unit(*tensor, *call_)) continue;
    throw InvalidArgument("unit '" + call_->units.front()->name() +
                          "' returns a parameter, or a view of one, which loses its memory when "
                          "forward() ends; return a clone()");
  }
  const std::vector<at::Tensor*> needed = with_gradient(tensors);
  if (needed.empty()) return;
  if (!call_->has_entry && call_->units.size() == 1) {
    call_->last_gradients = last_gradients_of(needed, *call_->units.front());
  }
  put_node("enter_unit", needed, [call = call_] { call->set->enter_backward(call); });
}

}  // namespace internal

GatheredParameters::GatheredParameters(std::unique_ptr<internal::ShardedScope> scope) noexcept
    : scope_(std::move(scope)) {}
GatheredParameters::GatheredParameters(GatheredParameters&&) noexcept = default;
GatheredParameters::~GatheredParameters() = default;

struct ShardedModule::Impl {
  std::shared_ptr<nn::Module> module;
  std::shared_ptr<UnitSet> set;
  std::vector<std::shared_ptr<Unit>> units;  ///< its own first, if it has one
  std::string name;
};

ShardedModule::ShardedModule(std::shared_ptr<nn::Module> module,
                             std::shared_ptr<Communicator> communicator,
                             const ShardedOptions& options)
    : impl_(std::make_unique<Impl>()) {
  if (module == nullptr) throw InvalidArgument("a Sharded module needs a module");
  check_communicator(communicator);
  impl_->module = std::move(module);
  impl_->set = UnitSet::of(*communicator);
  UnitSet& set = *impl_->set;
  impl_->name = options.name.empty() ? set.next_name(impl_->module->name()) : options.name;
  Contents contents;
  collect(*impl_->module, "", set, contents);
  check_parameters(impl_->name, contents);
  compare_units(*communicator, set, impl_->name, contents);
  share_buffers(*communicator, contents);
  if (!contents.own.empty()) {
    impl_->units.push_back(set.make_unit(impl_->name, contents.own, communicator));
  }
  impl_->units.insert(impl_->units.end(), contents.lenders.begin(), contents.lenders.end());
  ShadowBuilder(set).build(*impl_->module, *this);
}

ShardedModule::~ShardedModule() = default;

void ShardedModule::train(bool is_training) {
  nn::Module::train(is_training);
  impl_->module->train(is_training);
}

void ShardedModule::to(at::Device device, at::ScalarType dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

void ShardedModule::to(at::ScalarType dtype, bool /*non_blocking*/) {
  const at::ScalarType own = impl_->units.front()->parameters().front().slice.scalar_type();
  if (dtype == own) return;
  throw InvalidArgument("unit '" + impl_->name + "' is of type " + c10::toString(own) +
                        " and cannot become " + c10::toString(dtype) +
                        "; convert the module before it becomes a Sharded");
}

void ShardedModule::to(at::Device device, bool /*non_blocking*/) {
  if (device.is_cpu()) return;
  throw InvalidArgument("unit '" + impl_->name + "' cannot go to " + device.str() +
                        ": Sharded modules are on the CPU");
}

void ShardedModule::pretty_print(std::ostream& stream) const {
  stream << "Sharded ";
  impl_->module->pretty_print(stream);
}

GatheredParameters ShardedModule::gather() {
  return GatheredParameters(std::make_unique<internal::ShardedScope>(make_call()));
}

ShardedCounts ShardedModule::counts() const {
  internal::Gathers& gathers = impl_->set->gathers();
  return {gathers.count(), impl_->set->reductions(), gathers.pool().taken_bytes(),
          gathers.pool().most_taken_bytes()};
}

const std::string& ShardedModule::unit_name() const noexcept { return impl_->name; }

std::shared_ptr<UnitCall> ShardedModule::make_call() const {
  auto call = std::make_shared<UnitCall>();
  call->set = impl_->set;
  call->units = impl_->units;
  return call;
}

}  // namespace chainmail
