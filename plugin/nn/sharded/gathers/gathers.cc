// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/gathers/gathers.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

void Gathers::know(const std::shared_ptr<Unit>& unit) {
  std::erase_if(units_, [](const auto& entry) { return entry.second.expired(); });
  units_[unit->number()] = unit;
  drop_next();
  order_.forget();
  pool_.make_room_for(unit->block_bytes());
}

void Gathers::acquire(const std::shared_ptr<Unit>& unit, Pass pass) {
  if (unit->uses++ > 0) return;
  try {
    unit->fill(bring(*unit, pass));
    if (const auto next = order_.next_after({unit->number(), pass})) fetch(*next);
  } catch (...) {
    release(*unit);
    throw;
  }
}

void Gathers::release(Unit& unit) noexcept {
  if (--unit.uses == 0) pool_.give_back(unit.empty());
}

// A fetch that another unit, or another state of the slices, makes useless makes it so on all
// ranks, which train alike; where they do not, they find out by the header of the gather.
std::unique_ptr<Block> Gathers::bring(Unit& unit, Pass pass) {
  if (next_ && next_->unit.get() == &unit && next_->pass == pass &&
      next_->version == unit.version()) {
    next_->operation->wait();
    std::unique_ptr<Block> block = std::move(next_->block);
    next_.reset();
    return block;
  }
  drop_next();
  std::unique_ptr<Block> block = pool_.take();
  try {
    ops::Collective collective = unit.gather_into(*block, pass);
    collective.is_async = false;
    unit.communicator().impl().in_graph().run(collective);
  } catch (...) {
    pool_.give_back(std::move(block));
    throw;
  }
  ++count_;
  return block;
}

void Gathers::fetch(const GatherEvent& event) {
  const auto found = units_.find(event.unit);
  const std::shared_ptr<Unit> unit = found == units_.end() ? nullptr : found->second.lock();
  if (unit == nullptr || unit->is_full()) return;
  if (event.pass == Pass::kForward && unit->may_be_stepped()) return;
  Fetch next{unit, event.pass, unit->version(), pool_.take(), nullptr};
  try {
    next.operation =
        unit->communicator().impl().in_graph().submit(unit->gather_into(*next.block, event.pass));
  } catch (...) {
    pool_.give_back(std::move(next.block));
    throw;
  }
  next_ = std::move(next);
  ++count_;
}

void Gathers::drop_next() noexcept {
  if (!next_) return;
  try {
    if (next_->operation) next_->operation->wait();
  } catch (const std::exception& failure) {
    log_line(LogLevel::kInfo, "parameters of unit '" + next_->unit->name() +
                                  "', which nobody waited for: " + failure.what());
  }
  pool_.give_back(std::move(next_->block));
  next_.reset();
}

}  // namespace chainmail::internal
