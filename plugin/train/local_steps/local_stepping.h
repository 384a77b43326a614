// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Nodes that step by themselves and exchange what they have changed, fragment by fragment
// (LocalSteps): when they do what, and the groups of ranks that they do it in.
//
// Fragments travel in groups of their own, which go on while the ranks of a node average gradients.
//
// One thread per rank. Collective over all ranks but where it says local.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>
#include <chainmail/train/local_steps.h>
#include <chainmail/train/module_ref.h>

#include "ops/engine/group.h"
#include "plugin/train/local_steps/outer_fragment.h"
#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

class LocalStepping {
 public:
  /// `communicator` outlives this. What nodes have changed travels between them as `wire`; unset:
  /// as the communicator's group says. Throws InvalidArgument where there are no slices to be had.
  /// Local.
  LocalStepping(Communicator& communicator, const LocalSteps& options,
                std::optional<ops::WireFormat> wire, ModuleRef model);
  LocalStepping(const LocalStepping&) = delete;
  LocalStepping& operator=(const LocalStepping&) = delete;

  /// Whether nodes step by themselves now. Local.
  bool is_local() const noexcept { return steps_ >= options_.start; }
  /// Those of this rank's node, and those with the same slice on all nodes, after begin(). When one
  /// of the two or the communicator of all ends with an error, so do the others. Local.
  const std::shared_ptr<Communicator>& node() const noexcept { return node_; }
  const std::shared_ptr<Communicator>& cross() const noexcept { return cross_; }

  /// Throws what begin() would. Local.
  void check(const std::vector<NamedTensor>& parameters) const;
  /// Throws InvalidArgument where nodes step by themselves and begin() has not been reached since
  /// drop(). Local.
  void check_begun() const;
  /// From now on of `parameters`, which are equal on all ranks. The outer optimizer's momentum is
  /// zero. Exchanges under way must have ended.
  /// @throws InvalidArgument  parameters that cannot be cut, or fewer elements than fragments
  void begin(const std::vector<NamedTensor>& parameters);
  /// A step of the optimizer has ended. Exchanges what is due. True when it was the last one before
  /// nodes step by themselves: begin() is called then.
  [[nodiscard]] bool count_step();
  /// Completes all fragments: parameters are what all nodes have in common, and buffers their mean.
  /// False when there was nothing to do.
  bool flush();
  /// Ends the exchange under way and drops its result.
  void drop();

  /// Steps of the optimizer and exchanges so far; the same on all ranks. Local.
  struct Counts {
    std::int64_t steps = 0;
    std::int64_t rounds = 0;
  };
  [[nodiscard]] Counts counts() const noexcept { return {steps_, rounds_}; }
  /// As if it had made so many; begin() is called next. Local.
  void set_counts(const Counts& counts) noexcept;
  /// What this rank owns; `parameter` is a position in what begin() was given. Empty before. Local.
  [[nodiscard]] std::vector<OuterFragment::Piece> pieces() const;
  /// The next mean of elements `begin` on of such a parameter is to be larger by `values`, if this
  /// rank owns them. Local.
  void owe(std::size_t parameter, std::size_t begin, const at::Tensor& values);
  /// As if nothing had been rounded, nor was owed. Local.
  void clear_residuals();
  /// Of all fragments, in their order: what an integer wire has rounded away. Local.
  [[nodiscard]] std::vector<WireResiduals*> residuals() const;
  /// "int8, local steps: 32 steps, ...". Local.
  [[nodiscard]] std::string describe_exchanges() const;

 private:
  struct BufferMean {
    std::vector<at::Tensor> buffers;
    at::Tensor flat;
    std::shared_ptr<ops::Operation> operation;
  };

  template <typename Work>
  void timed(const Work& work);
  std::int64_t local_steps() const noexcept { return steps_ - options_.start; }
  void make_groups();
  void check_parameters(const std::vector<NamedTensor>& parameters) const;
  std::vector<std::vector<FragmentRow>> cut(const std::vector<NamedTensor>& parameters) const;
  void exchange_due();
  void send(std::size_t fragment);
  void complete(const OuterRule& rule);
  FragmentNumber number_of(std::size_t fragment) const;
  OuterRule due_rule() const;
  void send_buffers(const FragmentNumber& number);
  void complete_buffers();
  void compare_nodes();

  Communicator* communicator_;
  LocalSteps options_;
  ops::WireFormat wire_ = ops::WireFormat::kNative;
  ModuleRef model_;
  std::shared_ptr<Communicator> node_;   ///< the ranks of this node
  std::shared_ptr<Communicator> cross_;  ///< those with the same slice on all nodes
  std::vector<OuterFragment> fragments_;
  bool has_begun_ = false;                 ///< with parameters that are still the model's
  std::vector<char> is_common_;            ///< of each fragment: parameters are the common values
  std::optional<std::size_t> travelling_;  ///< the fragment that is on its way
  std::int64_t sent_after_ = 0;            ///< local steps before it was sent
  std::vector<BufferMean> buffers_;        ///< on their way
  std::vector<NamedTensor> sent_buffers_;  ///< all of the model's then
  std::int64_t steps_ = 0;
  std::int64_t rounds_ = 0;
  /// While it lives, an end of one of the three groups is that of all. Goes before them.
  std::shared_ptr<const char> tie_ = std::make_shared<const char>();
};

}  // namespace chainmail::internal
