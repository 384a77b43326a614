// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/unit_set.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chainmail/error.h>

#include "base/log.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/gradient_hooks.h"
#include "plugin/train/sharding/memory_ties.h"

namespace chainmail::internal {

namespace {

constexpr int kNoTask = -1;

// Among the callbacks of a backward, which it drops without a call when it fails.
class BackwardEnd {
 public:
  BackwardEnd(std::shared_ptr<UnitSet> set, int task) : set_(std::move(set)), task_(task) {}
  ~BackwardEnd() {
    if (!has_come_) set_->abandon_backward(task_);
  }
  BackwardEnd(const BackwardEnd&) = delete;
  BackwardEnd& operator=(const BackwardEnd&) = delete;

  void come() {
    set_->end_backward(task_);
    has_come_ = true;
  }

 private:
  const std::shared_ptr<UnitSet> set_;
  const int task_;
  bool has_come_ = false;
};

}  // namespace

std::shared_ptr<UnitSet> UnitSet::of(Communicator& communicator) {
  std::weak_ptr<UnitSet>& known = communicator.impl().units;
  std::shared_ptr<UnitSet> set = known.lock();
  if (set == nullptr) {
    set = std::make_shared<UnitSet>();
    known = set;
  }
  return set;
}

// Its units, and the nodes that need them, are gone: nobody waits for what is on its way.
UnitSet::~UnitSet() { drop_reduction(); }

std::shared_ptr<Unit> UnitSet::make_unit(const std::string& name,
                                         const std::vector<NamedTensor>& parameters,
                                         const std::shared_ptr<Communicator>& communicator) {
  former_.remember(name, parameters);
  const std::uint64_t number = units_made_++;
  auto unit = std::make_shared<Unit>(name, number, parameters, communicator,
                                     [weak = weak_from_this(), number](std::size_t parameter) {
                                       if (const auto set = weak.lock())
                                         set->take_gradient(number, parameter);
                                     });
  units_[number] = unit;
  gathers_.know(unit);
  return unit;
}

std::shared_ptr<Unit> UnitSet::owner_of(const at::Tensor& parameter) const {
  for (const auto& [number, known] : units_) {
    std::shared_ptr<Unit> unit = known.lock();
    if (unit != nullptr && unit->find(parameter)) return unit;
  }
  return nullptr;
}

std::string UnitSet::find_tie(const std::vector<NamedTensor>& parameters) const {
  for (const NamedTensor& parameter : parameters) {
    for (const auto& [number, known] : units_) {
      const std::shared_ptr<Unit> unit = known.lock();
      if (unit == nullptr) continue;
      if (const auto tied = unit->find_tied(parameter.tensor)) {
        return describe_memory_tie(unit->parameters()[*tied].name + " of unit " + unit->name(),
                                   parameter.name);
      }
    }
  }
  std::vector<NamedTensor> all = former_.in_use();
  all.insert(all.end(), parameters.begin(), parameters.end());
  const auto tie = find_memory_tie(all);
  return tie ? describe_memory_tie(all[tie->first].name, all[tie->second].name) : "";
}

void UnitSet::begin_forward(UnitCall& call) {
  if (torch::autograd::get_current_graph_task_id() == kNoTask) {
    for (const std::shared_ptr<Unit>& unit : call.units) unit->follow_slices();
  }
  acquire(call, Pass::kForward);
  for (const std::shared_ptr<Unit>& unit : call.units) call.versions.push_back(unit->version());
}

void UnitSet::end_forward(const UnitCall& call, bool has_failed) noexcept {
  release(call);
  if (has_failed) gathers_.drop_next();
}

void UnitSet::acquire(const UnitCall& call, Pass pass) {
  std::size_t acquired = 0;
  try {
    for (; acquired < call.units.size(); ++acquired) gathers_.acquire(call.units[acquired], pass);
  } catch (...) {
    while (acquired > 0) gathers_.release(*call.units[--acquired]);
    gathers_.drop_next();
    throw;
  }
}

void UnitSet::release(const UnitCall& call) noexcept {
  for (const std::shared_ptr<Unit>& unit : call.units) gathers_.release(*unit);
}

UnitSet::Backward* UnitSet::find_backward(int task) noexcept {
  const auto found = std::ranges::find(backwards_, task, &Backward::task);
  return found == backwards_.end() ? nullptr : &*found;
}

UnitSet::Backward& UnitSet::current_backward() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (Backward* const known = find_backward(task)) return *known;
  const auto end = std::make_shared<BackwardEnd>(shared_from_this(), task);
  at_end_of_backward([end] { end->come(); });
  Backward& backward = backwards_.emplace_back();
  backward.task = task;
  return backward;
}

void UnitSet::enter_backward(const std::shared_ptr<UnitCall>& call) {
  for (std::size_t i = 0; i < call->units.size(); ++i) {
    if (call->units[i]->version() == call->versions[i]) continue;
    throw InvalidArgument("unit '" + call->units[i]->name() +
                          "': parameters were written to since the forward() that this backward "
                          "goes back through; call forward() again after the write, or write "
                          "after backward()");
  }
  Backward& backward = current_backward();
  acquire(*call, Pass::kBackward);
  backward.calls.push_back(call);
}

void UnitSet::leave_backward(const UnitCall& call) noexcept {
  Backward* const backward = find_backward(torch::autograd::get_current_graph_task_id());
  if (backward == nullptr) return;
  const auto is_this = [&](const auto& one) { return one.get() == &call; };
  if (std::erase_if(backward->calls, is_this) > 0) release(call);
}

void UnitSet::take_gradient(std::uint64_t number, std::size_t parameter) {
  const auto found = units_.find(number);
  const std::shared_ptr<Unit> unit = found == units_.end() ? nullptr : found->second.lock();
  if (unit == nullptr) return;
  Backward& backward = current_backward();
  auto waiting = std::ranges::find(backward.waiting, unit, &Waiting::unit);
  if (waiting == backward.waiting.end()) {
    backward.waiting.push_back({unit, std::vector<char>(unit->parameters().size())});
    waiting = backward.waiting.end() - 1;
  }
  waiting->has_come[parameter] = 1;
  leave_finished_calls(backward, *waiting);
  if (static_cast<std::size_t>(std::ranges::count(waiting->has_come, 1)) < unit->trained()) return;
  reduce(unit);
  backward.waiting.erase(waiting);
}

void UnitSet::leave_finished_calls(Backward& backward, const Waiting& waiting) noexcept {
  std::erase_if(backward.calls, [&](const std::shared_ptr<UnitCall>& call) {
    const auto has_come = [&](std::size_t parameter) { return waiting.has_come[parameter] == 1; };
    if (call->last_gradients.empty() || call->units.front() != waiting.unit ||
        !std::ranges::all_of(call->last_gradients, has_come)) {
      return false;
    }
    release(*call);
    return true;
  });
}

// One at a time, so that there is one block of gradients besides those that backward makes.
void UnitSet::reduce(const std::shared_ptr<Unit>& unit) {
  if (!unit->has_gradients()) return;
  finish_reduction(/*takes_mean=*/true);
  start_reduction(unit);
}

void UnitSet::start_reduction(const std::shared_ptr<Unit>& unit) {
  std::unique_ptr<Block> block = gathers_.pool().take();
  try {
    GradientLayout layout = unit->pack_gradients(*block);
    auto operation = unit->communicator().impl().in_graph().submit(unit->mean_of(*block, layout));
    reducing_ = {unit, std::move(layout), std::move(block), std::move(operation)};
  } catch (...) {
    gathers_.pool().give_back(std::move(block));
    throw;
  }
  ++reductions_;
}

void UnitSet::finish_reduction(bool takes_mean) {
  if (!reducing_.unit) return;
  Reduction done = std::exchange(reducing_, {});
  try {
    done.operation->wait();
    if (takes_mean) done.unit->take_mean(*done.block, done.layout);
  } catch (...) {
    gathers_.pool().give_back(std::move(done.block));
    throw;
  }
  gathers_.pool().give_back(std::move(done.block));
}

void UnitSet::drop_reduction() noexcept {
  try {
    finish_reduction(/*takes_mean=*/false);
  } catch (const std::exception& failure) {
    log_line(LogLevel::kInfo, std::string("gradients that nobody waited for: ") + failure.what());
  }
}

void UnitSet::end_backward(int task) {
  const at::NoGradGuard no_grad;
  Backward* const backward = find_backward(task);
  if (backward == nullptr) return;
  for (const auto& call : std::exchange(backward->calls, {})) release(*call);
  while (!backward->waiting.empty()) {
    reduce(backward->waiting.front().unit);
    backward->waiting.erase(backward->waiting.begin());
  }
  finish_reduction(/*takes_mean=*/true);
  std::erase_if(backwards_, [&](const Backward& one) { return one.task == task; });
  if (backwards_.empty()) gathers_.drop_next();
}

// What has come of a backward that fails inside of another counts, as in torch; the outer one
// brings it to the ranks. All else is dropped, since there is no end at which ranks could meet.
void UnitSet::abandon_backward(int task) noexcept {
  Backward* const found = find_backward(task);
  if (found == nullptr) return;
  const Backward failed = std::move(*found);
  std::erase_if(backwards_, [&](const Backward& one) { return one.task == task; });
  for (const auto& call : failed.calls) release(*call);
  if (!backwards_.empty()) {
    std::vector<Waiting>& outer = backwards_.back().waiting;
    for (const Waiting& one : failed.waiting) {
      if (std::ranges::find(outer, one.unit, &Waiting::unit) != outer.end()) continue;
      outer.push_back({one.unit, std::vector<char>(one.has_come.size())});
    }
    return;
  }
  for (const Waiting& one : failed.waiting) one.unit->drop_gradients();
  gathers_.drop_next();
  drop_reduction();
}

}  // namespace chainmail::internal
