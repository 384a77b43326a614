// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The agent's part in MPI, between the node's MpiService and the controller, and in the files that
// come before ranks.

#include "base/error.h"
#include "launcher/agent/agent.h"

namespace chainmail::launch {

void Agent::start_mpi() {
  if (order_.mpi.empty()) return;
  try {
    const std::string helper = preload_ ? preload_->folder() + "/" + kPmixHelperName : "";
    mpi_ = std::make_unique<MpiService>(io_, complete_mpi_order(), marker_, helper,
                                        [this](const MpiMessage& message) { send_mpi(message); });
  } catch (const SystemError& error) {
    // The job ends by this; ranks that start meanwhile are ended with it.
    send_mpi({MpiOp::kUnserved, 0, 0, {}, {}, {}, error.what()});
  }
}

void Agent::send_mpi(const MpiMessage& message) {
  send_in_pieces(message,
                 [this](std::string body) { channel_->send(AgentMessage::kMpi, std::move(body)); });
}

void Agent::on_mpi(const internal::Frame& frame) {
  auto message = mpi_pieces_.add(frame.body);
  if (message && mpi_) mpi_->handle(std::move(*message));
}

void Agent::on_preload(const internal::Frame& frame) {
  if (!preload_) {
    preload_ = std::make_unique<PreloadStore>(marker_, [this](std::string body) {
      channel_->send(AgentMessage::kPreload, std::move(body));
    });
  }
  preload_->handle(frame.body);
  if (mpi_ && !preload_->folder().empty()) {
    mpi_->helper_arrived(preload_->folder() + "/" + kPmixHelperName);
  }
}

}  // namespace chainmail::launch
