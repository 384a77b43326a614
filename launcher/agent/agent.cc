// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/agent/supervisor.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Deadline;
using internal::Frame;
using internal::JobMessage;
using internal::UniqueFd;

// What may wait for the controller before the ranks' output is no longer read.
constexpr std::size_t kMaxQueuedBytes = std::size_t{1} << 20;
// For agents behind this one to end by themselves; mostly they have already.
constexpr std::chrono::milliseconds kTunnelTime{400};

UniqueFd taken_over(int fd, int replacement_flags) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) throw system_error("agent: cannot take over a standard stream");
  // Nothing else may read or write the channel by accident.
  const UniqueFd null(open("/dev/null", replacement_flags | O_CLOEXEC));
  dup2(null.get(), fd);
  return copy;
}

}  // namespace

Agent::Agent(std::string marker, const rlimit& descriptors, ControlGroup group)
    : marker_(std::move(marker)),
      group_(std::move(group)),
      supervisor_(getppid()),
      signals_(io_),
      heartbeat_(io_),
      relay_(
          io_, shared_,
          [this](AgentMessage type, std::string body) { send(type, std::move(body)); },
          descriptors),
      ranks_(
          io_, descriptors, group_,
          [this](AgentMessage type, std::string body) { send(type, std::move(body)); },
          [this](std::string frames) { channel_->send_raw(std::move(frames)); }) {}

void Agent::send(AgentMessage type, std::string body) {
  channel_->send(type, std::move(body));
  update_reading();
}

int Agent::run() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write fails, and says why
  adopt_orphans();
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) signals_.add(number);
  for (const int number : kPassedSignals) signals_.add(number);
  wait_for_signals();

  FrameChannel::Callbacks callbacks;
  callbacks.on_frame = [this](const Frame& frame) { on_frame(frame); };
  callbacks.on_end = [this](const std::string& reason) {
    if (reason != kClosed) say("the connection to the launcher ends: " + reason);
    lose_launcher();
  };
  callbacks.on_drained = [this] { update_reading(); };
  channel_ =
      std::make_unique<FrameChannel>(io_, taken_over(STDIN_FILENO, O_RDONLY),
                                     taken_over(STDOUT_FILENO, O_WRONLY), "", std::move(callbacks));
  channel_->send_marker(marker_);
  channel_->send(AgentMessage::kAgentHello,
                 encode_fields(AgentHello{.host = own_host_name(),
                                          .pid = static_cast<std::uint32_t>(getpid()),
                                          .cores = static_cast<std::uint32_t>(usable_processors()),
                                          .addresses = addresses_for_others(),
                                          .free_port = free_port()}));
  // After the hello, while the controller writes the order.
  cores_ = usable_cores();
  beat();
  io_.run();
  {
    // Asio leaves them with their default, and the exit code has still to be told.
    const SignalsBlocked blocked;
    signals_.clear();
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);
    ignore_passed_signals();
  }
  return exit_code_;
}

void Agent::wait_for_signals() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait_for_signals();
  });
}

// Schedulers send their signals here (Slurm to each task, Grid Engine to everything), and people
// do. The controller ends the job for all hosts alike, with time for ranks to finish.
void Agent::on_signal(int number) {
  if (number == SIGCHLD) return reap();
  if (is_passed_signal(number)) return on_passed_signal(number);
  if (getppid() != supervisor_)
    return end(128 + number);  // sent by the kernel: the supervisor has died
  tell_signalled(number, false);
}

// Its own ranks get it at once; the controller sees to all others.
void Agent::on_passed_signal(int number) {
  const auto& ignored = ranks_.order().ignored_signals;
  if (std::find(ignored.begin(), ignored.end(), static_cast<std::uint32_t>(number)) !=
      ignored.end()) {
    return;
  }
  const bool has_ranks = ranks_.is_running() && !ranks_.order().is_preparation;
  const bool has_been_passed = ranks_.has_passed(number);
  if (has_ranks) got_.add(number);
  if (has_been_passed) return;
  if (has_ranks) ranks_.pass_signal(number);
  tell_signalled(number, has_ranks);
}

void Agent::tell_signalled(int number, bool has_passed_it) {
  channel_->send(
      AgentMessage::kSignalled,
      BodyWriter().u32(static_cast<std::uint32_t>(number)).u8(has_passed_it ? 1 : 0).take());
}

void Agent::beat() {
  // A cut network shows neither an end of file nor an error; silence is all there is. When this
  // process itself was held up, what came meanwhile has not been read yet: look again later.
  const bool was_late = lag_.was_late();
  const std::chrono::milliseconds silence = channel_->silence();
  // On its own machine it is silent because that is too busy.
  const auto is_held_up = [&] {
    return silence < kLeasesOfOneMachine * lease_ && is_launcher_at_work();
  };
  if (silence > lease_ && !was_late && !is_held_up()) {
    say("nothing heard from the launcher for " + std::to_string(silence.count()) +
        " ms; the ranks here are ended");
    return lose_launcher();
  }
  channel_->send_urgent(AgentMessage::kHeartbeat, "");
  // Before anything else: what follows takes its time on a busy host.
  heartbeat_.expires_after(kHeartbeatInterval);
  heartbeat_.async_wait([this](const asio::error_code& error) {
    if (!error) beat();
  });
  ranks_.check();
}

void Agent::on_frame(const Frame& frame) {
  BodyReader body(frame.body);
  switch (type_of(frame)) {
    case AgentMessage::kHeartbeat:
      return;
    case AgentMessage::kStartPart:
      order_bytes_ += frame.body;
      return;
    case AgentMessage::kStart:
      return start_ranks();
    case AgentMessage::kSignalRanks:
      return ranks_.signal_all(static_cast<int>(body.u32()));
    case AgentMessage::kEndRank:
      return ranks_.end(body.u32());
    case AgentMessage::kMakeWill:
      return on_make_will(frame);
    case AgentMessage::kLease:
      lease_ = std::chrono::milliseconds(body.u32());
      return tell_supervisor(lease_);
    case AgentMessage::kPassSignal: {
      const int number = static_cast<int>(body.u32());
      const std::uint32_t rows = body.u32();
      if (number == SIGWINCH) ranks_.set_window({rows, body.u32()});
      if (!got_.has(number)) ranks_.pass_signal(number);
      return;
    }
    case AgentMessage::kOutputTaken:
      return on_output_taken(frame);
    case AgentMessage::kRankInput:
      return on_rank_input(frame);
    case AgentMessage::kRankBytes:
      if (RankStreams* streams = ranks_.streams_of(body.u32())) streams->write_job(body.text());
      return;
    case AgentMessage::kLeave:
      return end(0);
    case AgentMessage::kMpi:
      if (auto message = mpi_pieces_.add(frame.body); message && mpi_) {
        mpi_->handle(std::move(*message));
      }
      return;
    case AgentMessage::kSharedMpi:
      if (mpi_) mpi_->handle(decode_mpi(shared_.text(body.u32())));
      return;
    case AgentMessage::kPreload:
      return on_preload(frame);
    case AgentMessage::kTunnelOpen:
    case AgentMessage::kTunnelInput:
    case AgentMessage::kTunnelImage:
    case AgentMessage::kTunnelKill:
    case AgentMessage::kTunnelUrgent:
    case AgentMessage::kTunnelShared:
      return relay_.on_frame(frame);
    case AgentMessage::kSharedPart:
    case AgentMessage::kSharedDrop:
      return shared_.on_frame(frame);
    case AgentMessage::kTable:
      table_ = decode_table(shared_.text(body.u32()));
      return;
    case AgentMessage::kWelcomeRank:
      return welcome(body.u32());
    case AgentMessage::kNews:
      return tell_ranks(frame);
    default:  // a number from outside, any value
      throw SystemError("agent protocol: message for the controller came to an agent", EPROTO);
  }
}

// After the ranks of an earlier world have ended; its MPI helper goes before the next one comes.
void Agent::start_ranks() {
  if (ranks_.is_running()) throw SystemError("agent protocol: started while ranks run", EPROTO);
  StartOrder order = decode_order(std::exchange(order_bytes_, {}));
  ranks_.clear();
  welcomed_.clear();
  mpi_.reset();
  try {
    if (order.has_job_temp && !job_temp_) {
      job_temp_ = std::make_unique<AgentFolder>(marker_, kTempFolder);
    }
  } catch (const SystemError& error) {
    return ranks_.refuse(std::move(order), error.what());
  }
  start_mpi(order);
  ranks_.start(std::move(order), cores_, mpi_.get(), job_temp_ ? job_temp_->path() : "");
}

void Agent::on_output_taken(const Frame& frame) {
  BodyReader body(frame.body);
  RankStreams* streams = ranks_.streams_of(body.u32());
  const std::uint8_t stream = body.u8();
  if (streams != nullptr) streams->output_taken(stream, body.u32());
}

void Agent::on_rank_input(const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = body.u32();
  if (RankStreams* streams = ranks_.streams_of(number)) {
    streams->write_input(body.text());
  } else {
    channel_->send(AgentMessage::kInputTaken, BodyWriter().u32(number).u8(0).take());
  }
}

void Agent::start_mpi(const StartOrder& order) {
  if (order.mpi.empty()) return;
  try {
    const std::string helper = preload_ ? preload_->folder() + "/" + kPmixHelperName : "";
    mpi_ = std::make_unique<MpiService>(io_, complete_mpi_order(order), marker_, helper,
                                        [this](const MpiMessage& message) { send_mpi(message); });
  } catch (const SystemError& error) {
    // The job ends by this; ranks that start meanwhile are ended with it.
    send_mpi({.op = MpiOp::kUnserved, .data = error.what()});
  }
}

MpiOrder Agent::complete_mpi_order(const StartOrder& start) const {
  MpiOrder order = decode_mpi_order(start.mpi);
  if (table_) {
    order.node_of_rank = table_->welcome.node_of_rank;
    order.node_names = table_->mpi_node_names;
  }
  check_mpi_order(order);
  return order;
}

void Agent::send_mpi(const MpiMessage& message) {
  send_in_pieces(message,
                 [this](std::string body) { channel_->send(AgentMessage::kMpi, std::move(body)); });
}

void Agent::on_preload(const Frame& frame) {
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

void Agent::welcome(std::uint32_t rank) {
  RankStreams* streams = ranks_.streams_of(rank);
  if (streams == nullptr) return;
  if (!table_ || rank >= table_->welcome.node_of_rank.size()) {
    throw SystemError("agent protocol: a welcome that no table goes with", EPROTO);
  }
  internal::Welcome welcome = table_->welcome;
  welcome.rank = rank;
  welcomed_.insert(rank);
  streams->write_job(internal::encode_frame(
      {JobMessage::kWelcome, ranks_.order().generation, internal::encode_welcome(welcome)}));
}

void Agent::tell_ranks(const Frame& frame) {
  BodyReader body(frame.body);
  const auto type = static_cast<JobMessage>(static_cast<std::uint16_t>(body.u32()));
  const std::uint32_t except = body.u32();
  const std::string bytes = internal::encode_frame({type, ranks_.order().generation, body.text()});
  ranks_.write_all(bytes, except);
}

// A slow channel slows the ranks down instead of filling memory.
void Agent::update_reading() {
  const bool has_room = channel_->queued_bytes() < kMaxQueuedBytes;
  ranks_.set_reading(has_room);
  relay_.set_reading(has_room);
}

// Whatever it may say yet comes too late: for it, this host is lost.
void Agent::lose_launcher() {
  is_launcher_lost_ = true;
  channel_->close();
  heartbeat_.cancel();
  const std::chrono::milliseconds grace(ranks_.order().will_ms);
  if (grace.count() == 0 || !ranks_.is_running() || (will_ && will_->is_done())) return end(1);
  tell_supervisor(grace + lease_);
  ranks_.set_reading(true);
  ranks_.drop_output();
  if (!will_) make_will(grace, "");
}

// The launcher ends the job, and lives.
void Agent::on_make_will(const Frame& frame) {
  BodyReader body(frame.body);
  const std::chrono::milliseconds grace(body.u32());
  if (will_) return;
  const bool has_any = ranks_.order().will_ms > 0 && ranks_.is_running();
  if (!has_any) return on_will_made(WillEnd::kNothing, 0);
  make_will(grace, body.text());
}

void Agent::make_will(std::chrono::milliseconds grace, const std::string& reason) {
  will_ = std::make_unique<LastWill>(io_, ranks_, grace, reason, welcomed_,
                                     [this](auto how, auto step) { on_will_made(how, step); });
  ranks_.listen(
      [this](std::uint32_t rank, std::string_view bytes) { will_->on_bytes(rank, bytes); });
  will_->look();
}

void Agent::on_will_made(WillEnd how, std::uint64_t step) {
  if (is_launcher_lost_) return end(1);
  channel_->send(AgentMessage::kWillMade,
                 BodyWriter().u8(static_cast<std::uint8_t>(how)).u64(step).take());
}

void Agent::reap() {
  ranks_.reap();
  if (will_) will_->look();
  relay_.reap();
  reap_orphans();
}

// Ranks that ended have been dealt with; what else has ended came from them.
void Agent::reap_orphans() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (ranks_.owns(info.si_pid) || relay_.owns(info.si_pid)) return reap();
    if (mpi_) mpi_->on_child_end(info);
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

// For the launcher to show. Nothing waits for a reader; a pipe that is ready has room for this.
void Agent::say(const std::string& message) {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) != 1) return;
  const std::string text = kAgentSays + message + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void Agent::end(int exit_code) {
  exit_code_ = exit_code;
  ranks_.signal_all(SIGKILL);
  group_.kill_all();
  relay_.close(Deadline::after(kTunnelTime));
  const auto left = end_all_children(Deadline::after(std::chrono::milliseconds(1500)));
  for (const pid_t pid : left) {
    const std::string why = why_left(pid);
    if (!why.empty()) say(why + "; it is left behind");
  }
  mpi_.reset();  // its folders, now that nobody writes into them
  preload_.reset();
  job_temp_.reset();
  tell_supervisor(std::chrono::milliseconds(0));  // nothing here is worth waiting for
  io_.stop();
}

}  // namespace chainmail::launch
