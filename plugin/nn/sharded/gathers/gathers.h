// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which units have their parameters now: whoever needs one counts itself as a user, the first makes
// it gathered, the last gives its memory back. While one computes, the one that is expected next is
// on its way; FSDP's prefetch (Zhao et al., VLDB 2023), by recorded order.
//
// acquire() is collective. One thread at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "ops/core/operation.h"
#include "plugin/nn/sharded/block_pool.h"
#include "plugin/nn/sharded/gathers/gather_order.h"
#include "plugin/nn/sharded/unit.h"

namespace chainmail::internal {

class Gathers {
 public:
  /// Waits for what is on its way.
  ~Gathers() { drop_next(); }

  /// Returns when the parameters are there.
  void acquire(const std::shared_ptr<Unit>& unit, Pass pass);
  void release(Unit& unit) noexcept;
  /// Gives up what was fetched for nobody.
  void drop_next() noexcept;

  /// Every unit, before its first use.
  void know(const std::shared_ptr<Unit>& unit);
  BlockPool& pool() noexcept { return pool_; }
  std::uint64_t count() const noexcept { return count_; }

 private:
  struct Fetch {
    std::shared_ptr<Unit> unit;
    Pass pass = Pass::kForward;
    std::int64_t version = 0;  ///< of the slice that was sent
    std::unique_ptr<Block> block;
    std::shared_ptr<ops::Operation> operation;
  };
  std::unique_ptr<Block> bring(Unit& unit, Pass pass);
  void fetch(const GatherEvent& event);

  BlockPool pool_;
  GatherOrder order_;
  std::optional<Fetch> next_;
  std::unordered_map<std::uint64_t, std::weak_ptr<Unit>> units_;
  std::uint64_t count_ = 0;
};

}  // namespace chainmail::internal
