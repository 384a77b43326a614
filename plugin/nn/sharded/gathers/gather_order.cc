// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/gathers/gather_order.h"

#include "base/bytes.h"

namespace chainmail::internal {

namespace {

// A program whose gathers never repeat must not fill the memory with them.
constexpr std::size_t kMostContexts = std::size_t{1} << 16;

}  // namespace

std::uint64_t GatherOrder::context() const noexcept {
  return NumberHash().add(recent_[0]).add(recent_[1]).add(recent_[2]).wide_value();
}

std::optional<GatherEvent> GatherOrder::next_after(const GatherEvent& event) {
  if (last_) {
    if (successors_.size() >= kMostContexts) successors_.clear();
    const auto [found, is_new] = successors_.try_emplace(context(), Successor{event});
    if (!is_new) {
      found->second.is_sure = found->second.event == event;
      found->second.event = event;
    }
  }
  std::uint64_t& walk_of_unit = walk_of_[event.unit];
  if ((last_ && last_->pass != event.pass) || walk_of_unit == walk_) ++walk_;
  walk_of_unit = walk_;
  last_ = event;
  recent_[0] = recent_[1];
  recent_[1] = recent_[2];
  recent_[2] = event.unit * 2 + static_cast<std::uint64_t>(event.pass) + 1;

  const auto next = successors_.find(context());
  if (next == successors_.end() || !next->second.is_sure) return std::nullopt;
  const GatherEvent& expected = next->second.event;
  if (expected.pass != event.pass || walk_of_[expected.unit] == walk_) return std::nullopt;
  return expected;
}

void GatherOrder::forget() { *this = GatherOrder(); }

}  // namespace chainmail::internal
