// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an integer wire has rounded away so far, on this rank, of a row that is averaged again and
// again: of what the rank has contributed, and of the results that it owns.
//
// One thread at a time; while an exchange runs it is the engine's.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/core/operation.h"

namespace chainmail::internal {

class WireResiduals {
 public:
  /// Zeros beside a row of so many float32. Memory is taken as it is touched: a rank has that of
  /// the elements that it rounds.
  explicit WireResiduals(std::size_t elements);

  /// Of the next exchange of the row.
  [[nodiscard]] ops::WireFeedback next() noexcept;
  /// Since they were zeros; the same on all ranks.
  std::uint64_t exchanges() const noexcept { return exchanges_; }
  void set_exchanges(std::uint64_t exchanges) noexcept { exchanges_ = exchanges; }

  const at::Tensor& contributions() const noexcept { return contributions_; }
  const at::Tensor& results() const noexcept { return results_; }
  std::array<at::Tensor, 2> both() const { return {contributions_, results_}; }

 private:
  at::Tensor contributions_;
  at::Tensor results_;
  std::uint64_t exchanges_ = 0;
};

}  // namespace chainmail::internal
