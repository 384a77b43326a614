// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is kept of gradients (bucket_feedback.h). In a job of another layout rank r owes what the
// old ranks r, r + size, and so on owed.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "ops/engine/group.h"
#include "plugin/train/optimizer/model_exchange.h"
#include "plugin/train/wire/kept_residuals.h"

namespace chainmail::internal {

/// What decides which rank keeps what; add() what does besides the places of a group's ranks.
class LayoutHash {
 public:
  explicit LayoutHash(const ops::Group& group);
  void add(std::uint64_t number) { hash_.add(std::to_string(number) + ' '); }
  void add(const std::string& name) { hash_.add(name + ' '); }
  void add(const MemoryLayout& layout);
  /// Names the group's places, and ends with `rest` and the hash.
  [[nodiscard]] std::string describe(const std::string& rest = "") const;

 private:
  const ops::Group* group_;
  StreamHash hash_;
};

class GradientResiduals final : public KeptResiduals {
 public:
  /// `model` outlives this.
  explicit GradientResiduals(ModelExchange& model) noexcept : model_(&model) {}

  [[nodiscard]] std::string layout() const override;
  [[nodiscard]] std::vector<std::int64_t> exchanges() const override;
  [[nodiscard]] const MemoryLayout* lies(const std::string& parameter) const override;
  [[nodiscard]] std::vector<KeptRow> rows() const override;
  void clear() override;
  void expect_debts() override { model_->expect_debts(); }
  void set_exchanges(std::span<const std::int64_t> exchanges) override;
  void put(const KeptRow& row) override;
  [[nodiscard]] bool has(const Place& place) const override;
  [[nodiscard]] bool takes(const Place& place) const override;
  [[nodiscard]] std::vector<Range> wants(int old_rank, const Place& place) const override;
  void owe(const KeptRow& row, int old_ranks) override;

 private:
  struct Found {
    const GradientBucket* bucket = nullptr;
    std::size_t index = 0;
  };
  /// No bucket where the parameter has none.
  Found find(const std::string& parameter) const;

  ModelExchange* model_;
};

}  // namespace chainmail::internal
