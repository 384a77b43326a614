// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The units of a communicator: what happens to them in forward, in backward and when either fails.
//
// backward goes through nodes of autograd's graph behind the results and behind the arguments of
// each call, hooks on the parameters, and a callback at its end; FSDP's scheme (Zhao et al., VLDB
// 2023). All of that comes in the same order on all ranks, whose graphs are the same. Backwards may
// run inside of one another, through the same calls too: each has its own account of them.
//
// One thread per rank.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugin/nn/sharded/former_memory.h"
#include "plugin/nn/sharded/gathers/gathers.h"
#include "plugin/nn/sharded/unit.h"

namespace chainmail::internal {

class UnitSet;

/// One call of a module's forward(), kept by the nodes that it has left in a graph.
struct UnitCall {
  std::shared_ptr<UnitSet> set;              ///< lives as long as any of its units
  std::vector<std::shared_ptr<Unit>> units;  ///< whose parameters it needs
  std::vector<std::int64_t> versions;        ///< of the parameters that it used, unit by unit
  /// Where there is no node behind its arguments: the parameters of its one unit with whose
  /// gradients backward through it is over. Empty if that takes more than these.
  std::vector<std::size_t> last_gradients;
  bool has_entry = false;  ///< there is a node behind its arguments
};

class UnitSet : public std::enable_shared_from_this<UnitSet> {
 public:
  [[nodiscard]] static std::shared_ptr<UnitSet> of(Communicator& communicator);
  ~UnitSet();

  /// For a unit that has no name: that of its module and a number.
  [[nodiscard]] std::string next_name(const std::string& module) const {
    return module + ' ' + std::to_string(units_made_);
  }
  /// Collective.
  [[nodiscard]] std::shared_ptr<Unit> make_unit(const std::string& name,
                                                const std::vector<NamedTensor>& parameters,
                                                const std::shared_ptr<Communicator>& communicator);
  /// The unit that has `parameter`, and its slice; null where none has.
  [[nodiscard]] std::shared_ptr<Unit> owner_of(const at::Tensor& parameter) const;
  /// Which two parameters have memory in common, as describe_memory_tie() says it: both of
  /// `parameters`, which are to be a unit, or one of a unit that there is or was. Empty where none
  /// have. Local.
  [[nodiscard]] std::string find_tie(const std::vector<NamedTensor>& parameters) const;

  /// Makes the units' parameters be there.
  void begin_forward(UnitCall& call);
  void end_forward(const UnitCall& call, bool has_failed) noexcept;
  /// When backward reaches the results of a call, and when it has passed its arguments.
  void enter_backward(const std::shared_ptr<UnitCall>& call);
  void leave_backward(const UnitCall& call) noexcept;
  /// When a backward has ended, or has failed: then nothing stays whole.
  void end_backward(int task);
  void abandon_backward(int task) noexcept;

  const Gathers& gathers() const noexcept { return gathers_; }
  Gathers& gathers() noexcept { return gathers_; }
  std::uint64_t reductions() const noexcept { return reductions_; }

 private:
  /// Which gradients of a unit have come, whether or not they left something.
  struct Waiting {
    std::shared_ptr<Unit> unit;
    std::vector<char> has_come;  ///< parameter by parameter
  };
  /// One that runs.
  struct Backward {
    int task = 0;                                  ///< autograd's number
    std::vector<std::shared_ptr<UnitCall>> calls;  ///< that it is in
    std::vector<Waiting> waiting;                  ///< for more gradients
  };
  struct Reduction {
    std::shared_ptr<Unit> unit;
    GradientLayout layout;
    std::unique_ptr<Block> block;
    std::shared_ptr<ops::Operation> operation;
  };
  void acquire(const UnitCall& call, Pass pass);
  void release(const UnitCall& call) noexcept;
  Backward& current_backward();
  Backward* find_backward(int task) noexcept;
  void take_gradient(std::uint64_t unit, std::size_t parameter);
  void leave_finished_calls(Backward& backward, const Waiting& waiting) noexcept;
  void reduce(const std::shared_ptr<Unit>& unit);
  void start_reduction(const std::shared_ptr<Unit>& unit);
  void finish_reduction(bool takes_mean);
  void drop_reduction() noexcept;

  Gathers gathers_;
  std::map<std::uint64_t, std::weak_ptr<Unit>> units_;
  std::uint64_t units_made_ = 0;
  FormerMemory former_;
  std::vector<Backward> backwards_;  ///< the outermost first
  Reduction reducing_;               ///< on its way, if it has a unit
  std::uint64_t reductions_ = 0;
};

}  // namespace chainmail::internal
