// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/unit_set.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "base/log.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/gradient_hooks.h"

namespace chainmail::internal {

namespace {

constexpr int kNoTask = -1;

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
UnitSet::~UnitSet() {
  try {
    if (reducing_.unit) reducing_.operation->wait();
  } catch (const std::exception& failure) {
    log_line(LogLevel::kInfo, std::string("gradients that nobody waited for: ") + failure.what());
  }
}

std::shared_ptr<Unit> UnitSet::make_unit(const std::string& name,
                                         const std::vector<NamedTensor>& parameters,
                                         const std::shared_ptr<Communicator>& communicator) {
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
    if (unit == nullptr) continue;
    for (const UnitParameter& own : unit->parameters()) {
      if (own.full.is_same(parameter)) return unit;
    }
  }
  return nullptr;
}

void UnitSet::begin_forward(const UnitCall& call) {
  if (torch::autograd::get_current_graph_task_id() == kNoTask) {
    abandon_backward();
    for (const std::shared_ptr<Unit>& unit : call.units) unit->follow_slices();
  }
  std::size_t acquired = 0;
  try {
    for (; acquired < call.units.size(); ++acquired) {
      gathers_.acquire(call.units[acquired], Pass::kForward);
    }
  } catch (...) {
    while (acquired > 0) gathers_.release(*call.units[--acquired]);
    gathers_.drop_next();
    throw;
  }
}

void UnitSet::end_forward(const UnitCall& call, bool has_failed) noexcept {
  for (const std::shared_ptr<Unit>& unit : call.units) gathers_.release(*unit);
  if (has_failed) gathers_.drop_next();
}

// Each backward, one inside another too, gets a callback of its own.
int UnitSet::note_task() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (std::find(tasks_.begin(), tasks_.end(), task) == tasks_.end()) {
    at_end_of_backward([weak = weak_from_this(), task] {
      if (const auto set = weak.lock()) set->end_task(task);
    });
    tasks_.push_back(task);
  }
  return task;
}

void UnitSet::enter_backward(const std::shared_ptr<UnitCall>& call) {
  const int task = note_task();
  if (call->is_entered) return;
  std::size_t acquired = 0;
  try {
    for (; acquired < call->units.size(); ++acquired) {
      gathers_.acquire(call->units[acquired], Pass::kBackward);
    }
  } catch (...) {
    while (acquired > 0) gathers_.release(*call->units[--acquired]);
    throw;
  }
  call->is_entered = true;
  call->task = task;
  open_.push_back(call);
}

void UnitSet::leave_backward(UnitCall& call) noexcept {
  if (!call.is_entered) return;
  call.is_entered = false;
  for (const std::shared_ptr<Unit>& unit : call.units) gathers_.release(*unit);
  std::erase_if(open_, [&](const auto& one) { return one.get() == &call; });
}

void UnitSet::take_gradient(std::uint64_t number, std::size_t parameter) {
  const auto found = units_.find(number);
  const std::shared_ptr<Unit> unit = found == units_.end() ? nullptr : found->second.lock();
  if (unit == nullptr) return;
  const int task = note_task();
  const bool is_first = !unit->was_noted();
  if (unit->note_gradient(parameter)) {
    reduce(unit);
  } else if (is_first) {
    waiting_.push_back({unit, task});
  }
}

// One at a time, so that there is one block of gradients besides those that backward makes.
void UnitSet::reduce(const std::shared_ptr<Unit>& unit) {
  std::erase_if(waiting_, [&](const Waiting& one) { return one.unit == unit; });
  if (unit->has_gradients()) {
    finish_reduction(/*takes_mean=*/true);
    start_reduction(unit);
  }
  unit->drop_gradients();
  // Calls whose arguments need no gradient have no node that would say that they are over.
  const std::vector<std::shared_ptr<UnitCall>> open = open_;
  for (const std::shared_ptr<UnitCall>& call : open) {
    if (!call->has_entry && call->units.size() == 1 && call->units.front() == unit) {
      leave_backward(*call);
    }
  }
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

void UnitSet::leave_task(int task) noexcept {
  const std::vector<std::shared_ptr<UnitCall>> open = open_;
  for (const std::shared_ptr<UnitCall>& call : open) {
    if (call->task == task) leave_backward(*call);
  }
}

void UnitSet::end_task(int task) {
  const at::NoGradGuard no_grad;
  leave_task(task);
  const std::vector<Waiting> waiting = waiting_;
  for (const Waiting& one : waiting) {
    if (one.task == task) reduce(one.unit);
  }
  finish_reduction(/*takes_mean=*/true);
  std::erase(tasks_, task);
  if (tasks_.empty()) gathers_.drop_next();
}

// After a backward that ended with an exception, and so without its callback. The program may have
// dropped its gradients since.
void UnitSet::abandon_backward() {
  if (tasks_.empty()) return;
  for (const int task : tasks_) leave_task(task);
  for (const Waiting& one : waiting_) one.unit->drop_gradients();
  waiting_.clear();
  tasks_.clear();
  gathers_.drop_next();
  finish_reduction(/*takes_mean=*/false);
}

}  // namespace chainmail::internal
