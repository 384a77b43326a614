// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What integer wires have rounded away of an optimizer's exchanges, as a checkpoint sees it: rows
// of elements of parameters, of which each rank has its own. All ranks' rows together, added up,
// are what means have missed so far.
//
// One thread per rank, between exchanges. Local.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugin/tensor/memory_layout.h"

namespace chainmail::internal {

/// Elements of a parameter from `begin` on, in the order of KeptResiduals::lies().
struct KeptRow {
  std::string kind;       ///< which of a rank's rows of this parameter
  std::string parameter;  ///< its name
  std::int64_t begin = 0;
  at::Tensor values;  ///< float32, one-dimensional
  double factor = 1;  ///< makes them what they are without a loss scale
};

class KeptResiduals {
 public:
  virtual ~KeptResiduals() = default;

  /// Jobs with the same one round the same elements on the same ranks.
  [[nodiscard]] virtual std::string layout() const = 0;
  /// How often each row of exchanges was made; the same on all ranks.
  [[nodiscard]] virtual std::vector<std::int64_t> exchanges() const = 0;
  /// In which order a parameter's rows have its elements; null where it has no rows.
  [[nodiscard]] virtual const MemoryLayout* lies(const std::string& parameter) const = 0;
  /// Of this rank. Most of it is zeros that have no memory.
  [[nodiscard]] virtual std::vector<KeptRow> rows() const = 0;

  /// Forgets all.
  virtual void clear() = 0;
  /// Ranks owe what a checkpoint has from now on. On all ranks.
  virtual void expect_debts() = 0;
  /// After clear(), in a job of the same layout: as they were.
  virtual void set_exchanges(std::span<const std::int64_t> exchanges) = 0;
  virtual void put(const KeptRow& row) = 0;

  using Range = std::pair<std::int64_t, std::int64_t>;
  /// Of a row as it was saved.
  struct Place {
    std::string kind;
    std::string parameter;
    Range elements;
    bool is_reordered = false;  ///< they lie elsewhere now: who wants any wants all
  };
  /// Whether put() takes a row of these elements.
  [[nodiscard]] virtual bool has(const Place& place) const = 0;
  /// Whether anyone in a job of another layout takes one; the same on all ranks.
  [[nodiscard]] virtual bool takes(const Place& place) const = 0;
  /// In a job of another layout, of what rank `old_rank` had there: what this rank takes, so that
  /// every element goes to one rank.
  [[nodiscard]] virtual std::vector<Range> wants(int old_rank, const Place& place) const = 0;
  /// Takes what this rank wants of it: later means pay it. `old_ranks`: of the job that had it.
  virtual void owe(const KeptRow& row, int old_ranks) = 0;
};

}  // namespace chainmail::internal
