// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A unit: parameters that are gathered, used and given up together. This rank has a slice of them;
// the module's own tensors have memory only while somebody uses the unit.
//
// What autograd has saved of a parameter, transposed or not, shares the parameter's storage, and so
// sees the memory go and come back.
//
// One thread at a time. Only the constructor and what unit_set.h does with a unit are collective.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

#include "ops/core/operation.h"
#include "plugin/nn/sharded/block_pool.h"
#include "plugin/nn/sharded/flat_layout.h"
#include "plugin/nn/sharded/gathers/gather_order.h"
#include "plugin/train/gradients/gradient_hooks.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

struct UnitParameter {
  std::string name;
  at::Tensor full;   ///< the module's
  at::Tensor slice;  ///< what this rank has of it: one-dimensional, perhaps empty
};

class Unit {
 public:
  /// Takes rank 0's values of `parameters`, which are dense, of one floating-point type and on the
  /// CPU, and leaves them without memory. `ready` is called with the index of a parameter whose
  /// gradient has come. Collective.
  Unit(std::string name, std::uint64_t number, const std::vector<NamedTensor>& parameters,
       std::shared_ptr<Communicator> communicator, std::function<void(std::size_t)> ready);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::uint64_t number() const noexcept { return number_; }
  Communicator& communicator() const noexcept { return *communicator_; }
  const std::vector<UnitParameter>& parameters() const noexcept { return parameters_; }
  /// A block must have so many.
  std::size_t block_bytes() const noexcept;

  /// Whether the parameters have their memory.
  bool is_full() const noexcept { return block_ != nullptr; }
  void fill(std::unique_ptr<Block> block);
  /// The parameters lose it.
  [[nodiscard]] std::unique_ptr<Block> empty();
  /// Whether an optimizer has what it needs to change the slices: the same on all ranks.
  bool may_be_stepped() const;
  /// Of the parameters as they are whole, or would be now. Changes when a slice is written to, but
  /// for torch's own optimizers: they write to data().
  std::int64_t version() const { return is_full() ? whole_version_ : slice_version(); }
  /// Brings all slices into `block`.
  [[nodiscard]] ops::Collective gather_into(Block& block, Pass pass) const;

  /// Trains what slices say that is trained.
  /// @throws InvalidArgument  a parameter or a slice has been given other memory, or a part of it
  void follow_slices();
  /// How many parameters are trained.
  std::size_t trained() const noexcept { return trained_; }
  /// Which parameter `tensor` is, if it is one.
  std::optional<std::size_t> find(const at::Tensor& tensor) const noexcept;
  /// Which parameter has memory in common with `tensor`, which is none of them; where there is no
  /// memory now, when it comes back.
  std::optional<std::size_t> find_tied(const at::Tensor& tensor) const;
  /// Whether there are gradients.
  bool has_gradients() const;
  /// Moves the gradients to `block`, and says how.
  [[nodiscard]] GradientLayout pack_gradients(Block& block);
  /// Their mean, in `block`, whose slices then are where slices of gradients are.
  [[nodiscard]] ops::Collective mean_of(Block& block, const GradientLayout& layout) const;
  /// Adds this rank's of the mean to the gradients of its slices.
  void take_mean(const Block& block, const GradientLayout& layout);
  void drop_gradients();

  int uses = 0;  ///< who needs the parameters now

 private:
  void check_memory(std::size_t index) const;
  void move_to(const Block& block);
  void make_slices();
  void make_room_for_gradients();
  std::int64_t slice_version() const { return slice_.is_inference() ? 0 : slice_._version(); }
  std::string describe(const GradientLayout& layout) const;
  std::size_t element_bytes() const { return c10::elementSize(flat_.scalar_type()); }

  const std::string name_;
  const std::uint64_t number_;
  const std::shared_ptr<Communicator> communicator_;
  std::vector<UnitParameter> parameters_;
  FlatLayout layout_;
  std::uint32_t hash_ = 0;  ///< of the parameters
  at::Tensor flat_;         ///< all of them, in the storage that they share
  at::Tensor slice_;
  std::vector<SlicePart> own_;  ///< what the slice of each parameter is of slice_
  at::Tensor gradient_;         ///< of the slice, once there was one
  std::unique_ptr<Block> block_;
  std::int64_t whole_version_ = 0;
  std::size_t trained_ = 0;
  GradientHooks hooks_;
};

}  // namespace chainmail::internal
