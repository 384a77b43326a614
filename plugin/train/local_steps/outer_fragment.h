// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A fragment of the parameters and this rank's part of its outer state: the value that all nodes
// have in common, and the outer optimizer's momentum. As in two_dimensional, each local rank of a
// node owns a slice, which it exchanges with the same local ranks of the other nodes; the others of
// its node get the result from it.
//
// Means have the same bits on all nodes, so that the common values do for ever.
//
// One thread per rank. Collective over all ranks but where it says local.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/engine/group.h"
#include "plugin/train/local_steps/fragment_cut.h"
#include "plugin/train/local_steps/outer_step.h"
#include "plugin/train/optimizer/parameter_list.h"
#include "plugin/train/wire/wire_residuals.h"

namespace chainmail::internal {

/// Which exchange a message belongs to. Nodes that are not at the same one, or have other options,
/// get a MismatchError with both.
struct FragmentNumber {
  std::uint64_t fragment = 0;
  std::uint64_t fragments = 1;
  std::uint64_t round = 0;  ///< exchanges of the job before this one
  std::uint64_t step = 0;   ///< local steps before it
  std::uint64_t every = 1;  ///< LocalSteps::steps

  [[nodiscard]] std::uint32_t hash() const noexcept;
  /// "fragment 2 of 4, exchange 17 after local step 40, every 32 steps"
  [[nodiscard]] std::string describe() const;
};

class OuterFragment {
 public:
  /// `rows` are of `parameters`, which are dense and on the CPU, and equal on all ranks: their
  /// values are what the nodes have in common. This rank owns slice `own` of `slices`, or nothing
  /// where there is none of that number. What nodes have changed travels as `wire`; an integer one
  /// is for the rows that say so, and keeps what it rounds away for the next exchange. Local.
  OuterFragment(std::vector<FragmentRow> rows, const std::vector<NamedTensor>& parameters,
                std::size_t slices, std::size_t own, ops::WireFormat wire);

  /// Starts the exchange of what this node has changed. `cross` has this rank's counterparts on all
  /// nodes. Does not wait.
  void send(ops::Group& cross, const FragmentNumber& number);
  bool is_on_its_way() const noexcept { return is_on_its_way_; }
  /// Waits for the mean, steps with it and gives the parameters their new values on all ranks of
  /// the node, whose group is `node`.
  void complete(const OuterRule& rule, ops::Group& node);
  /// Waits for the mean and drops it; changes nothing.
  void drop();
  /// Parameters of 16 bits: what nodes have in common becomes what these are, so that a program
  /// that has the parameters has all of it. Local.
  void settle();

  /// A piece of outer state that this rank owns: elements `begin` to `end` of parameter `parameter`
  /// as they lie in memory. One-dimensional views.
  struct Piece {
    std::size_t parameter = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    at::Tensor common;
    at::Tensor velocity;
    /// What rounding has lost (WireResiduals); undefined where nothing is kept.
    at::Tensor contributions;
    at::Tensor results;
    at::Tensor owed;  ///< of means, besides; undefined: nothing
  };
  /// Local.
  [[nodiscard]] std::vector<Piece> pieces() const;
  /// The next mean of elements `begin` on of parameter `parameter` is to be larger by `values`,
  /// which this rank sees to where it owns them. Local.
  void owe(std::size_t parameter, std::size_t begin, const at::Tensor& values);
  /// As if nothing had been rounded, nor was owed. Local.
  void clear_residuals();
  /// Of each row that keeps what is rounded away. Local.
  [[nodiscard]] std::vector<WireResiduals*> residuals() const;

 private:
  struct Row {
    ops::WireFormat wire = ops::WireFormat::kNative;
    std::vector<NamedTensor> parameters;             ///< of each part
    std::vector<std::vector<std::int64_t>> strides;  ///< of these, as they are cut
    std::vector<SlicePart> parts;  ///< of the row; `parameter` is a position in the list
    std::vector<ParameterPlace> places;
    c10::ScalarType dtype = c10::kFloat;
    std::vector<std::size_t> bounds;  ///< of the slices
    std::size_t begin = 0;            ///< of this rank's
    std::size_t end = 0;
    at::Tensor common;                         ///< of the slice, in outer_type()
    at::Tensor velocity;                       ///< of the slice
    std::shared_ptr<WireResiduals> residuals;  ///< of the slice; null: nothing is kept
    at::Tensor owed;                           ///< of the slice's mean; undefined: nothing
    at::Tensor sent;  ///< the node's own values when the exchange began; else undefined
    at::Tensor mean;  ///< with `operation`, which makes it one
    std::shared_ptr<ops::Operation> operation;

    /// Elements of the row.
    std::size_t elements() const { return bounds.back(); }
    /// Throws InvalidArgument for a parameter whose elements lie in another order than before.
    void check_order() const;
    bool owns_any() const noexcept { return begin < end; }
    /// This rank's slice of the parameters, in outer_type().
    at::Tensor read() const;
    /// Replaces `changes`, which it keeps alive, by their mean over the nodes.
    ops::Collective mean_over_nodes(const at::Tensor& changes, const FragmentNumber& number) const;
    /// Gives all ranks of the node the row, of which this one has `own`, some of it at a time.
    void spread(const at::Tensor& own, ops::Group& node) const;
    /// Elements `from` to `to` of the row, which go to the parameters.
    void write(const at::Tensor& values, std::size_t from, std::size_t to) const;
  };

  std::vector<Row> rows_;
  bool is_on_its_way_ = false;
};

}  // namespace chainmail::internal
