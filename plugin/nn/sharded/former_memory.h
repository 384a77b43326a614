// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the parameters of units lay before they were cut. A module that has such memory when it
// becomes a unit itself was tied to them by it (set_data(), views), and no longer is.
//
// One thread. Local.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Storage.h>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

class FormerMemory {
 public:
  /// Before `parameters` of a unit get other memory.
  void remember(const std::string& unit, const std::vector<NamedTensor>& parameters);
  /// What somebody else still has of it, as tensors ("weight of unit encoder").
  [[nodiscard]] std::vector<NamedTensor> in_use() const;

 private:
  struct Piece {
    std::string name;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  ///< does not keep the memory
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };
  std::vector<Piece> pieces_;
};

}  // namespace chainmail::internal
