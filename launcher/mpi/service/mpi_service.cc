// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/service/mpi_service.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/error.h"

namespace chainmail::launch {
namespace {

bool wants_pmix(MpiMode mode) { return mode == MpiMode::kAuto || mode == MpiMode::kPmix; }
bool wants_pmi1(MpiMode mode) { return mode == MpiMode::kAuto || mode == MpiMode::kPmi1; }

std::uint32_t rank_in(const MpiMessage& message) {
  if (message.ranks.size() != 1) throw SystemError("MPI messages: a word about no rank", EPROTO);
  return message.ranks.front();
}

// The dynamic linker's words say which library a machine lacks, but not what to do.
std::string explained(const std::string& words) {
  constexpr std::string_view kLinker = "error while loading shared libraries: ";
  const std::size_t at = words.find(kLinker);
  if (at == std::string::npos) return "the MPI helper (chainmail-pmix) has " + words;
  const std::string library = words.substr(at + kLinker.size());
  return "the MPI helper (chainmail-pmix) needs " + library.substr(0, library.find(':')) +
         ", which is missing there; install Open MPI with its PMIx library (Debian: libpmix2), or "
         "use --mpi none for programs without MPI";
}

}  // namespace

MpiService::MpiService(asio::io_context& io, MpiOrder order, const std::string& marker,
                       const std::string& sent_helper, Send send)
    : io_(io),
      order_(std::move(order)),
      send_(std::move(send)),
      local_ranks_(order_.ranks_of(order_.node)),
      directories_(marker) {
  TrustedPath installed = find_pmix_helper();
  helper_program_ = std::move(installed.path);
  why_no_helper_ = std::move(installed.why);
  if (helper_program_.empty() && access(sent_helper.c_str(), X_OK) == 0) {
    helper_program_ = sent_helper;
  }
  if (wants_pmix(order_.mode)) open_listener();
  if (wants_pmi1(order_.mode)) pmi1_ = std::make_unique<Pmi1Server>(io_, order_, send_);
}

void MpiService::open_listener() {
  // A helper that is not there or is not run is a reason to speak, and Open MPI would give none. A
  // rank alone needs no server.
  const bool has_helper =
      !helper_program_.empty() || order_.sends_helper || !why_no_helper_.empty();
  const bool is_possible = has_helper || order_.node_of_rank.size() > 1;
  if (order_.mode == MpiMode::kAuto && (!is_possible || directories_.session().empty())) return;
  if (!has_helper) {
    why_no_helper_ =
        "it is not beside the launcher; it is built where libpmix's headers are (libpmix-dev)";
  }
  if (!has_helper && order_.mode == MpiMode::kPmix) {
    throw SystemError("--mpi pmix needs chainmail-pmix: " + why_no_helper_, ENOENT);
  }
  if (directories_.session().empty()) {
    throw SystemError("--mpi pmix needs a folder for MPI's session files, and none can be made: " +
                          directories_.why_no_session() +
                          "; set TMPDIR there to a folder that is yours",
                      ENOSPC);
  }
  listener_ = std::make_unique<PmixListener>(
      io_, order_.name, [this](internal::UniqueFd connection) { admit(std::move(connection)); });
}

MpiRank MpiService::place_of(std::uint32_t rank) const {
  const auto at = std::find(local_ranks_.begin(), local_ranks_.end(), rank);
  return {rank, static_cast<std::uint32_t>(at - local_ranks_.begin()),
          static_cast<std::uint32_t>(local_ranks_.size())};
}

void MpiService::add_variables(Environment& variables, std::uint32_t rank, bool is_crowded) const {
  drop_foreign_mpi(variables);
  const MpiRank place = place_of(rank);
  if (pmi1_) variables.merge(pmi1_variables(order_, rank, kPmi1Fd));
  if (!listener_) {
    // Open MPI then fails in MPI_Init, and does not take every rank for a job of one process.
    if (order_.node_of_rank.size() > 1) variables.emplace("OMPI_MCA_schizo", "ompi");
    return;
  }
  variables.merge(pmix_variables(order_, rank, {directories_.session(), listener_->port()}));
  variables.merge(open_mpi_variables(order_, place));
  // Ranks that wait give way to each other; otherwise they burn the cores that others need.
  if (is_crowded) variables.emplace("OMPI_MCA_mpi_oversubscribe", "1");
  if (!directories_.memory().empty()) {
    variables.emplace("OMPI_MCA_btl_vader_backing_directory", directories_.memory());
  }
}

internal::UniqueFd MpiService::socket_for(std::uint32_t rank) {
  return pmi1_ ? pmi1_->socket_for(rank) : internal::UniqueFd();
}

void MpiService::handle(MpiMessage message) {
  if (pmi1_ && pmi1_->handle(message)) return;
  if (!listener_ || helper_is_lost_) return;
  // Another node asks about a rank of ours that has not called yet.
  if (!helper_) start_helper();
  if (!helper_is_ready_) return early_messages_.push_back(std::move(message));
  helper_->send(message);
}

// Whoever called waits until it is ready.
void MpiService::start_helper() {
  if (helper_program_.empty()) return ask_for_helper();
  PmixHelper::Callbacks callbacks;
  callbacks.on_message = [this](MpiMessage message) { on_helper_message(std::move(message)); };
  callbacks.on_lost = [this](const std::string& words) { on_helper_lost(words); };
  try {
    helper_ = std::make_unique<PmixHelper>(io_, helper_program_, std::move(callbacks));
  } catch (const SystemError& error) {
    helper_is_lost_ = true;
    return send_({.op = MpiOp::kUnserved, .data = error.what()});
  }
  MpiMessage first{
      .op = MpiOp::kConfigure, .status = listener_->port(), .key = directories_.session()};
  first.data = encode_fields(order_);
  const PmixPlace place{directories_.session(), listener_->port()};
  for (const auto& [name, value] : pmix_variables(order_, local_ranks_.front(), place)) {
    first.entries.push_back({name, value});
  }
  helper_->send(first);
}

void MpiService::ask_for_helper() {
  if (order_.sends_helper) {
    if (std::exchange(has_asked_for_helper_, true)) return;
    return send_({.op = MpiOp::kWantHelper});
  }
  helper_is_lost_ = true;
  send_({.op = MpiOp::kUnserved,
         .data = "the MPI helper (chainmail-pmix) is not run: " + why_no_helper_});
}

void MpiService::helper_arrived(const std::string& program) {
  if (!has_asked_for_helper_ || !helper_program_.empty()) return;
  helper_program_ = program;
  start_helper();
}

void MpiService::admit(internal::UniqueFd connection) {
  if (helper_is_lost_) {
    return send_(
        {.op = MpiOp::kUnserved,
         .data = "the MPI helper (chainmail-pmix) had ended before a rank called MPI_Init"});
  }
  if (!helper_) start_helper();
  if (!helper_is_ready_) return early_.push_back(std::move(connection));
  helper_->pass(std::move(connection));
}

void MpiService::on_helper_message(MpiMessage message) {
  switch (message.op) {
    case MpiOp::kReady:
      helper_is_ready_ = true;
      for (internal::UniqueFd& connection : early_) helper_->pass(std::move(connection));
      for (const MpiMessage& waiting : early_messages_) helper_->send(waiting);
      early_.clear();
      early_messages_.clear();
      return;
    case MpiOp::kConnected:
      stages_[rank_in(message)] = Stage::kInside;
      return;
    case MpiOp::kFinalized:
      stages_[rank_in(message)] = Stage::kOver;
      return;
    case MpiOp::kUnserved:
      helper_is_lost_ = true;
      return send_(message);
    case MpiOp::kAbort:
    case MpiOp::kGather:
    case MpiOp::kPublish:
    case MpiOp::kLookup:
    case MpiOp::kUnpublish:
    case MpiOp::kForget:
    case MpiOp::kFetch:
    case MpiOp::kAnswer:
      return send_(message);
    default:
      throw SystemError("MPI messages: a helper does not say operation " +
                            std::to_string(static_cast<unsigned>(message.op)),
                        EPROTO);
  }
}

bool MpiService::any_inside() const {
  return !early_.empty() || std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) {
    return stage.second == Stage::kInside;
  });
}

void MpiService::on_helper_lost(const std::string& words) {
  if (std::exchange(helper_is_lost_, true)) return;
  // Ranks that are through with MPI, or never began, do not miss it.
  if (!any_inside()) return;
  send_({.op = MpiOp::kUnserved, .data = explained(words)});
}

void MpiService::on_child_end(const siginfo_t& info) {
  if (helper_) (void)helper_->on_child_end(info);
}

void MpiService::on_rank_exit(std::uint32_t rank, bool is_good) {
  // The last words of a rank reached the helper before the rank could end.
  if (helper_ && !helper_is_lost_) helper_->drain();
  if (pmi1_) pmi1_->on_rank_exit(rank);
  const auto stage = stages_.find(rank);
  const bool is_inside = (stage != stages_.end() && stage->second == Stage::kInside) ||
                         (pmi1_ && pmi1_->is_inside(rank));
  stages_[rank] = Stage::kOver;
  if (is_good && is_inside && order_.node_of_rank.size() > 1) {
    send_({.op = MpiOp::kUnfinished, .ranks = {rank}});
  }
}

}  // namespace chainmail::launch
