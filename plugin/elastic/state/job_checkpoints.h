// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ElasticJob::checkpoint() asked for: a checkpointer of each world, and the save of a member
// that is on its own.
//
// One thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <chainmail/checkpoint.h>
#include <chainmail/communicator.h>

#include "plugin/elastic/state/registered_state.h"

namespace chainmail::internal {

class JobCheckpoints {
 public:
  /// Throws InvalidArgument for an interval below 1, or for the reasons of a checkpointer.
  JobCheckpoints(std::string name, CheckpointOptions options, std::int64_t interval);

  /// Before a world ends: waits for what it is writing, which fails where members are lost.
  void leave_world();
  /// Collective, as are the next three.
  void enter_world(const std::shared_ptr<Communicator>& communicator, const RegisteredState& state);
  /// Makes the state that of the newest checkpoint; false where there is none.
  bool load();
  /// After a committed step that has returned: saves where it is time to.
  void on_step(std::int64_t step);
  /// After the last one: saves, and returns when it is on disk. Nothing where `step` was loaded or
  /// saved in this world.
  void on_last_step(std::int64_t step);
  /// By this member alone; returns when it is on disk.
  void save_alone(RegisteredState& state, std::int64_t step);

 private:
  const std::string name_;
  const CheckpointOptions options_;
  const std::int64_t interval_;
  std::int64_t newest_ = 0;  ///< that was loaded or saved by this process in this world
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<MultiNodeCheckpointer> checkpointer_;
};

}  // namespace chainmail::internal
