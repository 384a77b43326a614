// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/state/job_checkpoints.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <chainmail/error.h>

#include "base/log.h"
#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/store/lone_save.h"

namespace chainmail::internal {

JobCheckpoints::JobCheckpoints(std::string name, CheckpointOptions options, std::int64_t interval)
    : name_(std::move(name)), options_(std::move(options)), interval_(interval) {
  check_checkpoint_options(name_, options_);
  if (interval < 1) {
    throw InvalidArgument("checkpoints every " + std::to_string(interval) +
                          " steps: it takes one at least");
  }
}

void JobCheckpoints::leave_world() {
  checkpointer_.reset();
  communicator_.reset();
  newest_ = 0;  // what was being written may have been given up
}

void JobCheckpoints::enter_world(const std::shared_ptr<Communicator>& communicator,
                                 const RegisteredState& state) {
  auto impl = make_checkpointer_impl(communicator, name_, {}, options_, posix_file_system());
  for (const CheckpointItem& item : state.items()) impl->add(item);
  checkpointer_ = std::make_unique<MultiNodeCheckpointer>(std::move(impl));
  communicator_ = communicator;
}

bool JobCheckpoints::load() {
  const std::optional<std::int64_t> step = checkpointer_->maybe_load();
  newest_ = step.value_or(0);
  return step.has_value();
}

void JobCheckpoints::on_step(std::int64_t step) {
  if (step % interval_ != 0) return;
  checkpointer_->save(step);
  newest_ = step;
}

void JobCheckpoints::on_last_step(std::int64_t step) {
  // Who has joined since knows of none.
  const std::vector<std::int64_t> newest = communicator_->allgather_obj(newest_);
  if (std::ranges::max(newest) < step) checkpointer_->save(step);
  checkpointer_->wait();
  newest_ = step;
}

void JobCheckpoints::save_alone(RegisteredState& state, std::int64_t step) {
  FileImage image;
  state.fill(image);
  const std::string run_folder = options_.path + '/' + name_;
  internal::save_alone(*posix_file_system(), run_folder, step, image);
  LogMessage(LogLevel::kInfo) << "this rank has saved the state after step " << step << " in "
                              << run_folder;
}

}  // namespace chainmail::internal
