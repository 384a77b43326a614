// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank of an elastic job whose program, in Python, begins the worlds and keeps the state itself:
// ElasticMember with a communicator for what members say to each other.
//
// One thread. Collective over the members of the world: enter(), transfer(), gather().

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/elastic/member/elastic_member.h"
#include "plugin/elastic/state/state_transfer.h"
#include "plugin/job/world.h"

namespace chainmail::internal {

class OpenMember {
 public:
  /// Joins the job, as a world of its own. Throws InvalidArgument outside of an elastic job, and
  /// for a second one in a process.
  OpenMember();

  /// `description` is of all that members must have alike; `step`: that the program's state is
  /// after.
  void announce(const std::string& description, std::uint64_t step);
  [[nodiscard]] ElasticMember::Next wait(std::chrono::milliseconds limit);
  [[nodiscard]] std::int64_t generation() const noexcept { return generation_; }
  /// Of the world that was entered last, at first that of this process alone.
  [[nodiscard]] const chainmail::World& world() const noexcept;

  /// After kWorld.
  void enter();
  [[nodiscard]] bool is_donor() const;
  /// Whether somebody has to be given the state.
  [[nodiscard]] bool has_transfer() const;
  /// `own` is the state of a donor; the others get it.
  [[nodiscard]] std::vector<std::byte> transfer(std::span<const std::byte> own);
  /// In enter() nobody had a state that counts: it is after the step of announce() once more, until
  /// a checkpoint is read.
  [[nodiscard]] bool begins_anew() const { return member_->begins_anew(); }
  /// A checkpoint is read, whether to the end or not.
  void on_loading() { member_->set_altered(true); }
  /// All that this member lacked is there, and checked; the state is that after `step`.
  void begun(std::uint64_t step);

  /// One more group of the world: `ranks` of it, which all call.
  struct Made {
    std::shared_ptr<ops::Group> group;
    std::shared_ptr<ops::Rendezvous> rendezvous;
  };
  [[nodiscard]] Made make_group(const std::vector<int>& ranks, ops::GroupOptions options);

  /// What every rank says, by rank.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& own);
  [[nodiscard]] bool wants_change() const noexcept { return member_->wants_change(); }
  /// The step counts. `wants_change` is that of all members.
  void commit(bool wants_change);
  void returned(bool is_finished);
  [[nodiscard]] bool is_finished() const noexcept { return member_->is_finished(); }
  /// Whether what has just failed did so because the world has changed or is about to.
  [[nodiscard]] bool is_world_over();

 private:
  template <typename Function>
  auto note_failure(const Function& function);
  /// Collective.
  bool does_first_say(bool own);

  std::shared_ptr<Communicator> communicator_;
  std::int64_t generation_ = 0;
  std::map<std::string, int> made_;        ///< groups of each name, in this world
  TransferredNumbers numbers_;             ///< of the world that is beginning
  std::uint64_t received_ = 0;             ///< bytes of state
  std::uint64_t first_step_ = 0;           ///< of announce()
  bool is_altered_ = false;                ///< what the world that is beginning anew begins with
  std::exception_ptr failure_;             ///< what enter(), transfer() or make_group() has thrown
  std::unique_ptr<ElasticMember> member_;  ///< last: it calls the rest
};

}  // namespace chainmail::internal
