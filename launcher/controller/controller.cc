// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starting a job and keeping its loop going; what agents say is in controller_frames.cc, how a job
// ends in controller_end.cc.

#include "launcher/controller/controller.h"

#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "launcher/agent/children.h"
#include "launcher/controller/rank_environment.h"
#include "launcher/hosts/host_source.h"
#include "launcher/mpi/mpi_directories.h"
#include "launcher/remote/agent_starter.h"
#include "launcher/remote/start_failure.h"
#include "launcher/signals.h"
#include "launcher/staging/preload_store.h"

namespace chainmail::launch {
namespace {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  // Up to 256 bytes come whole.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(count)) {
    throw system_error("cannot get random bytes");
  }
  return bytes;
}

std::string random_hex(std::size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : random_bytes(bytes)) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

// ssh gives up a connection after 10 s; slow start-up files come on top.
constexpr std::chrono::milliseconds kLoginLimit{30000};

std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << static_cast<double>(time.count()) / 1000 << " s";
  return text.str();
}

// Of one stream of one rank: so many that the launcher stays small with a slow reader, and as many
// as keep a fast one busy.
std::size_t output_window(std::size_t ranks) {
  constexpr std::size_t kAllBytes = std::size_t{16} << 20;
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  return std::clamp(kAllBytes / (2 * ranks), kLeast, kMost);
}

OutputOptions output_options(const Options& options, const Placement& placement) {
  OutputOptions output;
  output.tag = options.tag_output;
  output.timestamp = options.timestamp;
  output.carriage_returns = isatty(STDOUT_FILENO) == 1;
  output.directory = options.output_dir;
  for (const PlacedRank& rank : placement.ranks) {
    output.host_of_rank.push_back(placement.nodes[static_cast<std::size_t>(rank.node)].name);
  }
  return output;
}

bool has_input(const InputTarget& input, std::uint32_t rank) {
  if (input.kind == InputTarget::Kind::kNone) return false;
  const bool is_meant =
      input.kind == InputTarget::Kind::kAll || static_cast<std::uint32_t>(input.rank) == rank;
  return is_meant && InputReader::is_worthwhile();
}

}  // namespace

Controller::Controller(Options options, Placement placement, std::string launcher_path,
                       JobDirectory& directory, std::vector<int> ignored_signals,
                       std::uint32_t generation)
    : options_(std::move(options)),
      placement_(std::move(placement)),
      launcher_path_(std::move(launcher_path)),
      job_id_(random_hex(8)),
      secret_(random_bytes(32)),
      event_file_(options_.output_dir, directory, generation > 0),
      events_(job_id_, generation,
              [this](std::string line) { event_file_.write(std::move(line)); }),
      signals_(io_),
      heartbeat_(io_),
      phase_timer_(io_),
      verdict_timer_(io_),
      time_limit_(io_),
      start_failures_timer_(io_),
      store_([this](std::uint32_t rank, internal::JobMessage type, std::string body) {
        send_to_rank(rank, type, std::move(body));
      }),
      verdict_(placement_.ranks.size()),
      stalls_(placement_.ranks.size()),
      tunnels_(
          [this](std::uint32_t node, AgentMessage type, std::string body) {
            if (nodes_[node].link) nodes_[node].link->send(type, std::move(body));
          },
          [this](std::uint32_t node, AgentMessage type, std::string body) {
            if (nodes_[node].link) nodes_[node].link->send_urgent(type, std::move(body));
          }),
      nodes_(placement_.nodes.size()),
      ranks_(placement_.ranks.size()),
      generation_(generation),
      ignored_signals_(std::move(ignored_signals)) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].node = static_cast<std::uint32_t>(placement_.ranks[i].node);
  }
  OutputOptions output = output_options(options_, placement_);
  output.append = generation_ > 0;
  output.on_written = [this] { asio::post(io_, [this] { on_written(); }); };
  output_ = std::make_unique<OutputSink>(std::move(output));
}

// Its thread posts to the loop.
Controller::~Controller() { (void)output_->finish(); }

int Controller::run(std::optional<Milliseconds> time_left) {
  signal(SIGPIPE, SIG_IGN);
  // In the background of a terminal the launcher goes on; see InputReader.
  signal(SIGTTIN, SIG_IGN);
  signal(SIGTTOU, SIG_IGN);
  adopt_orphans();
  for (const int number : {SIGCHLD, SIGTERM, SIGTSTP}) signals_.add(number);
  // Under nohup the job is meant to outlive the terminal; in the background of a script, Ctrl-C;
  // under `trap '' USR1`, a scheduler's warning.
  for (const int number : {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGWINCH}) {
    if (!ignores(number)) signals_.add(number);
  }
  wait_for_signals();
  prepare_programs();
  prepare_mpi();
  prepare_preload();
  events_.record_start(options_, placement_);
  start_agents();
  beat();
  if (options_.timeout) {
    time_limit_.expires_after(time_left.value_or(*options_.timeout));
    time_limit_.async_wait([this](const asio::error_code& error) {
      if (error) return;
      stop_for("the time limit of " + seconds_text(*options_.timeout) + " has passed",
               exit_code::kTimeLimit,
               std::min(options_.grace.value_or(Milliseconds(5000)), Milliseconds(5000)));
    });
  }
  io_.run();
  {
    // From here on Ctrl-C ends a launcher that waits for somebody to read its output. Of signals
    // that are passed on it dies at no moment: Asio leaves them with their default.
    const SignalsBlocked blocked;
    signals_.clear();
    ignore_passed_signals();
  }
  input_.reset();
  replaced_links_.clear();
  for (Node& node : nodes_) node.link.reset();
  if (lost_local_agent_) {
    // The warden among them may have been about to do this.
    (void)end_all_children(internal::Deadline::after(Milliseconds(3000)));
  }
  if (lost_local_agent_ || has_lost_host_) remove_left_folders();
  return finish_output();
}

// Agents that were killed with their wardens could not. A remote shell may lead to this machine,
// too.
void Controller::remove_left_folders() {
  std::vector<std::string> markers;
  for (const Node& node : nodes_) markers.push_back(node.start.marker);
  remove_mpi_directories(markers);
  remove_preloaded(markers);
}

// The exit code.
int Controller::finish_output() {
  const bool is_whole = output_->finish();
  const int code = decided_code_.value_or(is_whole ? 0 : exit_code::kLauncherError);
  events_.record("job_ended", {{"code", code}});
  const std::string loss = event_file_.finish();
  if (loss.empty()) return code;
  std::cerr << "launcher: " << loss << std::endl;
  return decided_code_.value_or(exit_code::kLauncherError);
}

void Controller::prepare_programs() {
  const Environment own = current_environment();
  std::set<std::string> missing;
  for (const Application& application : applications_of(options_)) {
    OrderedProgram& program = programs_.emplace_back();
    program.words = application.program;
    program.working_directory = application.working_directory;
    if (program.working_directory.empty()) {
      program.working_directory = current_directory();
    }
    std::vector<ExportedVariable> exported = options_.common_variables;
    exported.insert(exported.end(), application.variables.begin(), application.variables.end());
    std::vector<std::string> absent;
    program.variables = exported_environment(own, exported, absent);
    missing.insert(absent.begin(), absent.end());
  }
  for (const std::string& name : missing) {
    output_->say("launcher: -x " + name + ": there is no such variable here; it is not set");
  }
}

// All of them before the first is run: bad usage starts nothing.
void Controller::prepare_starts() {
  AgentStarter starter(remote_shell_of(options_), launcher_path_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].start = starter.start_on(placement_.nodes[i], "chainmail-" + random_hex(8));
  }
}

void Controller::start_agents() {
  prepare_starts();
  plan_tree();
  start_next_agents(0);
}

// Starting many takes longer than agents wait for a word; those that run already get their
// heartbeats in between.
void Controller::start_next_agents(std::uint32_t node) {
  constexpr Milliseconds kSlice{20};
  const auto end = std::chrono::steady_clock::now() + kSlice;
  for (; node < nodes_.size() && phase_ == Phase::kStarting; ++node) {
    if (nodes_[node].carrier || nodes_[node].link) continue;
    start_agent(node);
    if (std::chrono::steady_clock::now() < end) continue;
    asio::post(io_, [this, node] { start_next_agents(node + 1); });
    return;
  }
}

void Controller::start_agent(std::uint32_t node) {
  const Host& host = placement_.nodes[node];
  AgentLink::Callbacks callbacks;
  callbacks.on_hello = [this, node, &host](const AgentHello& hello) {
    events_.record("agent_up", {{"host", host.name}, {"pid", hello.pid}, {"cores", hello.cores}});
    start_carried_by(node);
    on_hello();
  };
  callbacks.on_frame = [this, node](const internal::Frame& frame) { on_frame(node, frame); };
  callbacks.on_lost = [this, node](const std::string& reason) { on_agent_lost(node, reason); };
  callbacks.on_error_line = [this, &host](const std::string& line) {
    output_->say("[" + host.name + "] " + line);
  };
  callbacks.on_note = [this, &host](const std::string& note) { tell_not_run(host.name, note); };
  Node& started = nodes_[node];
  // Of a remote shell that was given up, somebody has to hear the end.
  if (started.link && !started.link->reap()) replaced_links_.push_back(std::move(started.link));
  ++started.starts;
  EventLog::Members members = {{"host", host.name}, {"attempt", started.starts}};
  if (started.carrier) members["through"] = placement_.nodes[*started.carrier].name;
  events_.record("agent_starting", members);
  try {
    std::unique_ptr<AgentProcess> process;
    if (started.carrier) {
      process = tunnels_.open(*started.carrier, started.start);
    } else {
      process = std::make_unique<LocalAgentProcess>(io_, started.start, descriptors_.before());
    }
    started.link =
        std::make_unique<AgentLink>(io_, started.start, std::move(process), std::move(callbacks),
                                    AgentLimits{options_.lease.value_or(kDefaultLease),
                                                options_.start_timeout.value_or(kLoginLimit)});
  } catch (const SystemError& error) {
    fail({std::nullopt, exit_code::kLauncherError,
          "cannot start the agent on host " + host.name + ": " + error.what() +
              (error.native_code() == EMFILE
                   ? "; each host that is started from here takes three open files: raise the "
                     "limit (ulimit -n), or let hosts start each other by --tree auto"
               : error.native_code() == ENOENT
                   ? "; install openssh-client or name another remote shell by --rsh"
                   : "")});
  }
}

// Once: hosts of a cluster are alike.
void Controller::tell_not_run(const std::string& host, std::string note) {
  if (std::exchange(has_told_not_run_, true)) return;
  // Whatever a machine sends must not act on the user's terminal.
  std::erase_if(note, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  output_->say("launcher: host " + host + ": " + note +
               "; the launcher has sent itself there instead. To have that one run, let nobody "
               "but root or yourself own it and the folders it lies in, and nobody else write "
               "there (chown, chmod go-w)");
}

// sshd refuses logins when many come at once (MaxStartups) and does not say so; later ones succeed,
// if not all come again at the same time.
bool Controller::start_again(std::uint32_t node) {
  if (phase_ != Phase::kStarting ||
      nodes_[node].starts >= worthwhile_tries(nodes_[node].link->error_output())) {
    return false;
  }
  const int longest = 500 << std::min(nodes_[node].starts, 4);
  const auto share = static_cast<unsigned char>(random_bytes(1).front());
  auto timer = std::make_shared<asio::steady_timer>(io_, Milliseconds(200 + longest * share / 256));
  timer->async_wait([this, timer, node](const asio::error_code& error) {
    if (!error && phase_ == Phase::kStarting) start_agent(node);
  });
  return true;
}

// Hosts that are down mostly fail together; whoever has to mend them wants to know them all.
void Controller::add_start_failure(std::string text) {
  constexpr Milliseconds kForMore{1000};
  start_failures_.push_back(std::move(text));
  const bool others_start = std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    return !node.carrier && (!node.link || !(node.link->hello() || node.link->is_lost()));
  });
  if (!others_start) return report_start_failures();
  if (start_failures_.size() > 1) return;
  start_failures_timer_.expires_after(kForMore);
  start_failures_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) report_start_failures();
  });
}

// The first one with all that was printed, of the others a sentence each.
void Controller::report_start_failures() {
  constexpr std::size_t kMost = 16;
  start_failures_timer_.cancel();
  std::string text = start_failures_.front();
  for (std::size_t i = 1; i < std::min(start_failures_.size(), kMost); ++i) {
    text += "\nlauncher: " + start_failures_[i].substr(0, start_failures_[i].find('\n'));
  }
  if (start_failures_.size() > kMost) {
    text += "\nlauncher: and " + std::to_string(start_failures_.size() - kMost) + " more hosts";
  }
  fail({std::nullopt, exit_code::kLauncherError, text});
}

bool Controller::could_not_start() const noexcept {
  return !has_started_ && !was_interrupted_ && is_reported_ && !start_failures_.empty() &&
         !is_refused_;
}

void Controller::on_hello() {
  if (phase_ != Phase::kStarting) return;
  for (const Node& node : nodes_) {
    if (!node.link || !node.link->hello()) return;
  }
  if (sends_files_first()) return;
  phase_ = Phase::kRunning;
  has_started_ = true;
  // What came before reached nobody; the same signal may yet come to agents that have ranks.
  own_signals_.clear();
  agents_signals_.clear();
  send_orders();
}

void Controller::send_orders() {
  if (options_.torchrun_env) {
    const AgentHello& first = *nodes_.front().link->hello();
    const std::string address = first.addresses.substr(0, first.addresses.find(','));
    for (OrderedProgram& program : programs_) {
      program.variables["MASTER_ADDR"] = nodes_.size() == 1 ? "127.0.0.1" : address;
      program.variables["MASTER_PORT"] = std::to_string(first.free_port);
    }
  }
  send_table();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].link->send_order(order_for(node));
  }
  start_input();
}

Controller::Milliseconds Controller::start_timeout() const {
  // Shared file systems take minutes when all hosts ask them at once, and then give an answer.
  constexpr Milliseconds kDefault = std::chrono::minutes(5);
  constexpr Milliseconds kMost = std::chrono::hours(24 * 7);
  return std::min(options_.start_timeout.value_or(kDefault), kMost);
}

void Controller::start_input() {
  std::vector<std::uint32_t> targets;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (has_input(options_.input, rank)) targets.push_back(rank);
  }
  if (targets.empty()) return;
  input_ = std::make_unique<RankInput>(
      io_, std::move(targets), [this](std::uint32_t rank, const std::string& bytes) {
        nodes_[ranks_[rank].node].link->send(AgentMessage::kRankInput,
                                             internal::BodyWriter().u32(rank).text(bytes).take());
      });
}

StartOrder Controller::order_for(std::uint32_t node) const {
  StartOrder order;
  order.generation = generation_;
  order.world_size = static_cast<std::uint32_t>(ranks_.size());
  order.node_rank = node;
  for (const PlacedRank& placed : placement_.ranks) {
    if (static_cast<std::uint32_t>(placed.node) != node) continue;
    const auto rank = static_cast<std::uint32_t>(placed.rank);
    order.ranks.push_back(
        {rank, static_cast<std::uint32_t>(placed.application), has_input(options_.input, rank)});
  }
  order.programs = programs_;
  for (OrderedProgram& program : order.programs) {
    add_variables_of(placement_.nodes[node], program.variables);
  }
  name_copies(node, order);
  order.binding = options_.binding;
  order.start_timeout_ms = static_cast<std::uint32_t>(start_timeout().count());
  order.processors = static_cast<std::uint32_t>(placement_.nodes[node].processors.value_or(0));
  order.output_window = static_cast<std::uint32_t>(output_window(ranks_.size()));
  if (mpi_) {
    MpiOrder mpi;
    mpi.mode = mpi_order_.mode;
    mpi.name = mpi_order_.name;
    mpi.sends_helper = mpi_order_.sends_helper;
    mpi.node = node;
    order.mpi = encode_mpi_order(mpi);
  }
  order.carriage_returns = isatty(STDOUT_FILENO) == 1;
  order.ignored_signals.assign(ignored_signals_.begin(), ignored_signals_.end());
  return order;
}

void Controller::wait_for_signals() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (error) return;
    if (number == SIGCHLD) {
      reap_agents();
    } else if (number == SIGTSTP) {
      // Stopped, the launcher would be taken for dead by its agents.
      output_->say("launcher: a job cannot be suspended; the signal is ignored");
    } else if (is_passed_signal(number)) {
      pass_signal(number);
    } else {
      interrupt(number);
    }
    wait_for_signals();
  });
}

void Controller::beat() {
  const bool was_late = watch_.was_late();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].link) nodes_[node].link->tick(was_late || is_behind_silent_host(node));
  }
  check_progress(was_late);
  event_file_.beat();
  if (output_->is_broken() && phase_ == Phase::kRunning) {
    stop_for("nobody reads the output any more", exit_code::kSignalBase + SIGPIPE,
             Milliseconds(1000));
  }
  heartbeat_.expires_after(kHeartbeatInterval);
  heartbeat_.async_wait([this](const asio::error_code& error) {
    if (!error) beat();
  });
}

// What has been written makes room for more; so a reader that is slower than the ranks slows them
// down, while heartbeats go on.
void Controller::on_written() {
  for (const WrittenOutput& written : output_->take_written()) {
    const Node& node = nodes_[ranks_[written.rank].node];
    if (!node.link) continue;
    node.link->send(
        AgentMessage::kOutputTaken,
        internal::BodyWriter().u32(written.rank).u8(written.stream).u32(written.bytes).take());
  }
}

const std::string& Controller::host_of(std::uint32_t rank) const {
  return placement_.nodes[ranks_[rank].node].name;
}

}  // namespace chainmail::launch
