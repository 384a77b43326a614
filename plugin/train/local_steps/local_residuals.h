// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is kept of fragments that travel as integers, and of gradients, which travel before local
// steps begin. In a job of another layout the first node's owners owe what all ranks owed of their
// elements of fragments.

#pragma once

#include "plugin/train/local_steps/local_stepping.h"
#include "plugin/train/optimizer/model_exchange.h"
#include "plugin/train/wire/gradient_residuals.h"
#include "plugin/train/wire/kept_residuals.h"

namespace chainmail::internal {

class LocalResiduals final : public KeptResiduals {
 public:
  /// Both outlive this.
  LocalResiduals(ModelExchange& model, LocalStepping& stepping) noexcept
      : gradients_(model), model_(&model), stepping_(&stepping) {}

  [[nodiscard]] std::string layout() const override;
  [[nodiscard]] std::vector<std::int64_t> exchanges() const override;
  [[nodiscard]] const MemoryLayout* lies(const std::string& parameter) const override {
    return gradients_.lies(parameter);  // fragments refuse parameters that lie otherwise by now
  }
  [[nodiscard]] std::vector<KeptRow> rows() const override;
  void clear() override;
  void expect_debts() override { gradients_.expect_debts(); }
  void set_exchanges(std::span<const std::int64_t> exchanges) override;
  void put(const KeptRow& row) override;
  [[nodiscard]] bool has(const Place& place) const override;
  [[nodiscard]] bool takes(const Place& place) const override;
  [[nodiscard]] std::vector<Range> wants(int old_rank, const Place& place) const override;
  void owe(const KeptRow& row, int old_ranks) override;

 private:
  const std::string& name_of(const OuterFragment::Piece& piece) const;
  /// Among parameters of the exchange.
  std::optional<std::size_t> position_of(const std::string& parameter) const;
  bool covers(const OuterFragment::Piece& piece, const Place& place) const;

  GradientResiduals gradients_;
  ModelExchange* model_;
  LocalStepping* stepping_;
};

}  // namespace chainmail::internal
