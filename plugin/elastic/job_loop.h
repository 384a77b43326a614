// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an ElasticJob does step after step: calls the program's function, and under
// `launcher --elastic` follows the worlds that its member is told of: makes the group, moves the
// state, begins a step anew that others have broken, and saves when the job has to end.
//
// One thread per rank. Collective: run().

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/elastic.h>

#include "plugin/elastic/member/elastic_member.h"
#include "plugin/elastic/sharded_step.h"
#include "plugin/elastic/state/job_checkpoints.h"
#include "plugin/elastic/state/registered_state.h"
#include "plugin/train/shards/shard_progress.h"

namespace chainmail::internal {

class JobLoop {
 public:
  JobLoop(std::shared_ptr<Communicator> communicator, std::shared_ptr<ShardProgress> progress,
          std::uint64_t seed);

  const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  [[nodiscard]] ShardedStep& step() noexcept { return step_; }
  [[nodiscard]] const ShardedStep& step() const noexcept { return step_; }
  void load_state(const ElasticJobState& state);

  /// In an elastic job, before run(). `options` describes what all members must have alike.
  void join(std::shared_ptr<LauncherClient> launcher, std::string options);
  bool is_elastic() const noexcept { return member_ != nullptr; }
  /// Throws InvalidArgument.
  void refuse_within_run(const std::string& call) const;
  void add(CheckpointItem item, RegisteredState::Kind kind = {});
  /// One more thing that all members must have alike, a line.
  void add_option(const std::string& text) { options_ += text + "\n"; }
  void on_world(std::function<void(const Membership&)> callback) {
    on_world_.push_back(std::move(callback));
  }
  void checkpoint(std::unique_ptr<JobCheckpoints> checkpoints);
  void run(const std::function<bool(Step& step)>& function);

 private:
  struct MayLoad {
    explicit MayLoad(bool& may_load) : may_load_(may_load) { may_load_ = true; }
    ~MayLoad() { may_load_ = false; }
    bool& may_load_;
  };

  void run_member(const std::function<bool(Step& step)>& function);
  bool repeat(const std::function<bool(Step& step)>& function);
  bool call(const std::function<bool(Step& step)>& function);
  void end_function(bool goes_on);
  void end_together();
  void enter(const membership::World& world);
  std::uint64_t transfer(const std::vector<int>& donors, std::uint64_t& position,
                         bool& is_finished);
  std::uint64_t begin_anew();
  void tell_world();
  [[nodiscard]] bool can_save(std::uint64_t step) const;
  void save_alone();

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<ShardProgress> progress_;
  ShardedStep step_;
  bool is_running_ = false;
  bool may_load_ = false;                     ///< even within run()
  std::optional<ElasticJobState> beginning_;  ///< of run(), in an elastic job
  std::vector<std::function<void(const Membership&)>> on_world_;
  std::uint32_t told_generation_ = 0;  ///< to on_world_
  std::uint32_t generation_ = 1;
  std::string options_;
  std::shared_ptr<LauncherClient> launcher_;  ///< null in a job of fixed size
  RegisteredState registered_;
  std::unique_ptr<JobCheckpoints> checkpoints_;  ///< null where none were asked for
  std::unique_ptr<ElasticMember> member_;  ///< null in a job of fixed size; last: it calls the rest
};

}  // namespace chainmail::internal
