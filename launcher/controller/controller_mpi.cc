// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's part in MPI: what the ranks' MPI libraries tell about themselves. Where they
// meet is MpiExchange.

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/error.h"
#include "launcher/controller/controller.h"
#include "launcher/mpi/pmix_helper.h"

namespace chainmail::launch {
namespace {

// Known to the job's ranks only: who can say it is one of them.
std::string unguessable_name() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw system_error("cannot get random bytes");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "chainmail-";
  for (const unsigned char byte : bytes) {
    name += kDigits[byte >> 4U];
    name += kDigits[byte & 15U];
  }
  return name;
}

// What a shell keeps of it; an abort is never a success.
int code_of_abort(std::int32_t status) {
  const int code = static_cast<int>(static_cast<std::uint32_t>(status) & 255U);
  return code == 0 ? 1 : code;
}

}  // namespace

void Controller::prepare_mpi() {
  if (options_.mpi == MpiMode::kNone) return;
  mpi_order_.mode = options_.mpi;
  mpi_order_.name = unguessable_name();
  const auto helper = std::filesystem::path(launcher_path_).parent_path() / kPmixHelperName;
  mpi_order_.sends_helper = access(helper.c_str(), R_OK | X_OK) == 0;
  std::vector<std::string> hosts;
  for (const Host& host : placement_.nodes) hosts.push_back(host.name);
  mpi_order_.node_names = mpi_node_names(hosts);
  for (const Rank& rank : ranks_) mpi_order_.node_of_rank.push_back(rank.node);
  mpi_pieces_.resize(nodes_.size());
  mpi_ = std::make_unique<MpiExchange>(
      mpi_order_.node_of_rank,
      [this](std::uint32_t node, const MpiMessage& message) { send_mpi(node, message); },
      [this](const std::set<std::uint32_t>& nodes, const MpiMessage& message) {
        send_mpi_to_all(nodes, message);
      });
}

void Controller::on_mpi(std::uint32_t node, const internal::Frame& frame) {
  if (!mpi_) throw SystemError("agent protocol: MPI in a job without it", EPROTO);
  if (auto message = mpi_pieces_[node].add(frame.body)) on_mpi_message(node, std::move(*message));
}

void Controller::on_mpi_message(std::uint32_t node, MpiMessage message) {
  if (message.op == MpiOp::kUnserved) {
    const std::string cause =
        "MPI cannot be served on host " + placement_.nodes[node].name + ": " + message.data;
    // No rank is lost by this, but all of them will be.
    tell_ending(cause);
    return fail({std::nullopt, exit_code::kLauncherError, cause});
  }
  if (message.op == MpiOp::kWantHelper) return send_pmix_helper(node);
  if (message.op != MpiOp::kAbort && message.op != MpiOp::kUnfinished) {
    return mpi_->handle(node, std::move(message));
  }
  if (message.ranks.size() != 1) {
    throw SystemError("MPI messages: an end that names no rank", EPROTO);
  }
  const std::uint32_t rank = checked_rank(node, message.ranks.front());
  if (message.op == MpiOp::kUnfinished) {
    return fail({rank, 1,
                 "ended after MPI_Init without MPI_Finalize; ranks that wait for it would wait for "
                 "ever"});
  }
  std::string cause = "called MPI_Abort with code " + std::to_string(message.status);
  // Open MPI has no words of its own and says so.
  if (!message.data.empty() && message.data != "N/A") cause += ": " + message.data;
  fail({rank, code_of_abort(message.status), cause});
}

}  // namespace chainmail::launch
