// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs one job: starts an agent per node, has them start the ranks, serves the ranks' store,
// spreads news, and brings everything down when the job ends, however it ends.
//
// One thread with an event loop; no listening socket anywhere.

#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/child_process.h"
#include "launcher/controller/agent_link.h"
#include "launcher/controller/event_log.h"
#include "launcher/controller/rank_input.h"
#include "launcher/controller/stall_watch.h"
#include "launcher/controller/store_server.h"
#include "launcher/controller/verdict.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/options.h"
#include "launcher/output/event_file.h"
#include "launcher/output/last_lines.h"
#include "launcher/output/output_sink.h"
#include "launcher/placement.h"
#include "launcher/staging/preload_sender.h"
#include "launcher/staging/preload_source.h"
#include "launcher/tree/tunnels.h"

namespace chainmail::launch {

class Controller {
 public:
  /// `ignored_signals`: by the launcher's caller, so by the job. `generation` counts the worlds of
  /// one job: 0, and one more for each restart.
  Controller(Options options, Placement placement, std::string launcher_path,
             JobDirectory& directory, std::vector<int> ignored_signals,
             std::uint32_t generation = 0);
  ~Controller();
  /// Until the job is over; the launcher's exit code.
  /// `time_left`: of --timeout, where earlier worlds have used some of it.
  int run(std::optional<std::chrono::milliseconds> time_left = {});
  /// After run(): a rank failed or a host was lost, and nobody asked for the job's end.
  [[nodiscard]] bool may_start_anew() const;
  /// After run(): no rank was started, because of hosts out of reach.
  [[nodiscard]] bool could_not_start() const noexcept;
  /// After run(): ranks on a host out of reach may live on for the length of their lease.
  [[nodiscard]] bool has_lost_host() const noexcept { return has_lost_host_; }

 private:
  using Milliseconds = std::chrono::milliseconds;
  enum class Phase { kStarting, kRunning, kNotifying, kTerminating, kKilling, kAbandoning, kOver };
  struct Rank {
    std::uint32_t node = 0;
    bool is_gone = false;
    internal::FrameReader requests;
    LastLines last_error_lines;
    std::optional<std::chrono::steady_clock::time_point> stopped_since;
  };
  struct Node {
    AgentStart start;
    std::unique_ptr<AgentLink> link;
    bool all_exited = false;
    int starts = 0;
    std::optional<std::uint32_t> carrier;  // whose agent starts this one
    std::vector<std::uint32_t> carried;    // whom this one starts
    std::chrono::steady_clock::time_point catches_up_until;
  };

  // starting
  void start_agents();
  void start_next_agents(std::uint32_t node);
  void prepare_starts();
  void start_agent(std::uint32_t node);
  bool start_again(std::uint32_t node);
  void tell_not_run(const std::string& host, std::string note);
  void on_hello();
  void send_orders();
  StartOrder order_for(std::uint32_t node) const;
  void prepare_programs();
  void start_input();

  void add_start_failure(std::string text);
  void report_start_failures();

  // agents behind agents (controller_tree.cc)
  void plan_tree();
  void start_carried_by(std::uint32_t node);
  bool start_from_here(std::uint32_t node);
  void lose_carried_by(std::uint32_t node);
  std::string carried_text(std::uint32_t node) const;
  bool carries_others(std::uint32_t node) const;
  bool is_behind_silent_host(std::uint32_t node);
  void tell_to_leave(bool all);

  // what agents say (controller_frames.cc)
  void on_frame(std::uint32_t node, const internal::Frame& frame);
  void on_output(std::uint32_t node, const internal::Frame& frame);
  void on_start_failed(std::uint32_t node, const internal::Frame& frame);
  void fail_late_start(std::uint32_t rank, const std::string& stage, const std::string& path);
  Milliseconds start_timeout() const;
  void on_rank_bytes(std::uint32_t node, const internal::Frame& frame);
  void on_rank_message(std::uint32_t rank, const internal::Frame& frame);
  void on_input_taken(std::uint32_t node, const internal::Frame& frame);
  std::uint32_t checked_rank(std::uint32_t node, std::uint32_t rank) const;
  void send_to_rank(std::uint32_t rank, internal::JobMessage type, std::string body);
  void on_group_failed(std::uint32_t rank, const internal::Frame& frame);

  // what all nodes or all ranks get (controller_spread.cc)
  std::vector<std::uint32_t> way_to(const std::set<std::uint32_t>& nodes) const;
  std::uint32_t share(const std::string& text, const std::vector<std::uint32_t>& way);
  void drop_shared(std::uint32_t number, const std::vector<std::uint32_t>& way);
  void send_table();
  void send_welcome(std::uint32_t rank);
  void tell_ranks(internal::JobMessage type, std::uint32_t except, const std::string& body);
  void send_mpi(std::uint32_t node, const MpiMessage& message);
  void send_mpi_to_all(const std::set<std::uint32_t>& nodes, const MpiMessage& message);

  // files that hosts get first (controller_preload.cc)
  void prepare_preload();
  bool sends_files_first();
  void send_pmix_helper(std::uint32_t node);
  void on_preload(std::uint32_t node, const internal::Frame& frame);
  void name_copies(std::uint32_t node, StartOrder& order) const;

  // MPI (controller_mpi.cc)
  void prepare_mpi();
  void on_mpi(std::uint32_t node, const internal::Frame& frame);
  void on_mpi_message(std::uint32_t node, MpiMessage message);

  // what becomes of ranks and hosts (controller_watch.cc)
  void on_rank_started(std::uint32_t node, const internal::Frame& frame);
  void on_rank_exited(std::uint32_t node, const RankExit& exit);
  void on_rank_stopped(std::uint32_t node, const internal::Frame& frame);
  void give_up_stopped(std::uint32_t rank, std::chrono::steady_clock::time_point since);
  void on_step(std::uint32_t rank, const internal::Frame& frame);
  void check_progress(bool was_late);
  void end_stall(const Stall& stall);
  void on_agent_lost(std::uint32_t node, const std::string& reason);
  void lose_rank(std::uint32_t rank, const std::string& cause);
  void list_ended(std::uint32_t rank, const std::string& cause);
  std::string ended_text() const;
  std::string names_of(const std::vector<std::uint32_t>& ranks) const;
  EventLog::Members about(std::uint32_t rank) const;

  // ending (controller_end.cc)
  void fail(Failure failure);
  void report_failure();
  std::string first_cause(const Failure& failure) const;
  void look_for_silent_host();
  std::chrono::seconds ending_time() const;
  void interrupt(int signal_number);
  bool ignores(int signal_number) const;
  void pass_signal(int signal_number);
  void pass_signal_of(std::uint32_t node, int signal_number, bool has_passed_it);
  void spread_signal(int signal_number, std::optional<std::uint32_t> origin, bool has_passed_it);
  void on_agent_signalled(std::uint32_t node, const internal::Frame& frame);
  void stop_for(const std::string& reason, int exit_code, Milliseconds grace);
  void tell_ending(const std::string& reason);
  void enter(Phase phase, Milliseconds next_after);
  void wait_for_next_phase(Milliseconds next_after);
  void next_phase();
  void end_if_all_exited();
  void leave();
  void leave_with_the_rest();
  void finish_if_gone();
  void reap_agents();
  void abandon();

  // loop
  void wait_for_signals();
  void beat();
  void on_written();
  void remove_left_folders();
  int finish_output();
  const std::string& host_of(std::uint32_t rank) const;

  Options options_;
  Placement placement_;
  std::string launcher_path_;
  std::string job_id_;
  std::string secret_;
  std::vector<OrderedProgram> programs_;  // by PlacedRank::application
  std::unique_ptr<OutputSink> output_;
  EventFile event_file_;
  EventLog events_;
  asio::io_context io_;
  asio::signal_set signals_;
  asio::steady_timer heartbeat_;
  asio::steady_timer phase_timer_;
  asio::steady_timer verdict_timer_;
  asio::steady_timer time_limit_;
  asio::steady_timer start_failures_timer_;
  std::vector<std::string> start_failures_;  // of hosts, each explained
  bool is_refused_ = false;                  // a host refuses the login, and will again
  std::unique_ptr<RankInput> input_;
  StoreServer store_;
  Verdict verdict_;
  StallWatch stalls_;
  bool has_told_stall_ = false;
  PunctualityWatch watch_;
  ManyDescriptors descriptors_;
  Tunnels tunnels_;  // outlives the links
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<AgentLink>> replaced_links_;  // whose processes have not ended yet
  std::vector<Rank> ranks_;
  MpiOrder mpi_order_;
  std::vector<MpiPieces> mpi_pieces_;  // of each node
  std::unique_ptr<MpiExchange> mpi_;
  std::vector<std::uint32_t> from_above_;  // nodes, each after the one that carries it
  std::uint32_t next_shared_ = 0;
  int failures_told_ = 0;
  PreloadSource preload_source_;
  std::vector<std::size_t> copied_programs_;  // of each program, with --preload
  std::optional<std::size_t> helper_file_;    // MPI's, once a host has asked for it
  std::unique_ptr<PreloadSender> preload_;
  std::size_t hosts_without_copies_ = 0;
  bool has_sent_copies_ = false;
  Phase phase_ = Phase::kStarting;
  Milliseconds kill_after_{0};
  std::optional<int> decided_code_;
  std::uint32_t generation_;
  bool has_started_ = false;
  bool has_lost_host_ = false;
  bool was_interrupted_ = false;
  bool is_reported_ = false;
  bool has_listeners_ = false;  // ranks that hear news
  bool lost_local_agent_ = false;
  bool has_told_detour_ = false;
  bool has_told_not_run_ = false;
  std::vector<int> ignored_signals_;
  std::chrono::steady_clock::time_point agents_signal_at_;
  // When a signal was passed on last that came to this process, and one that came to an agent.
  std::map<int, std::chrono::steady_clock::time_point> own_signals_;
  std::map<int, std::chrono::steady_clock::time_point> agents_signals_;
  bool all_told_to_leave_ = false;
};

}  // namespace chainmail::launch
