// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's side of an elastic job: which hosts and members it has, generation by generation.
//
// Pure: an event in, actions out. No clock, thread, socket or chance: the same events always give
// the same actions, which is what the simulator (tests/base/membership) and the validation of
// traces rest on. One thread. The launcher decides alone, so there is no vote and no election.
//
// A planned change (join, drain, rebalance) waits for a boundary: Wanted, Held from all, NewWorld
// with its start. An unplanned one (dead, stopped, cut off) is announced at once: NewWorld without
// a start, MyState from all, then Resume, or NewWorld with a start where the set changes once more.
// In both cases the newest committed state wins and who lacks it fetches it.
//
// Timers: StartWorldTimer replaces a running timer of the same kind and subject. There is no
// cancelling; one that elapses when its reason has gone is ignored.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/types.h"
#include "base/membership/world/host_table.h"
#include "base/membership/world/reach.h"
#include "base/membership/world/shard_suspects.h"
#include "base/membership/world/world_events.h"
#include "base/membership/world/world_options.h"

namespace chainmail::membership {

class WorldMachine {
 public:
  enum class Phase {
    kWaiting,     ///< no world runs: before the first, or fewer members than the minimum
    kRunning,     ///< steps are committed; the launcher does not see them
    kHolding,     ///< Wanted is out, Held is awaited
    kCollecting,  ///< NewWorld without a start is out, MyState is awaited
    kSaving,      ///< the job ends as soon as the state is on disk
    kEnded,
  };

  struct Member {
    enum class Status {
      kStarting,
      kReady,  ///< a newcomer or a spare
      kInWorld,
      kLeaving,  ///< told to leave
      kEnding,   ///< ended by EndMember
    };
    MemberId id = 0;
    HostId host = 0;
    Status status = Status::kStarting;
    bool is_base = false;
    bool is_draining = false;
    bool is_stopped = false;
    std::uint32_t weight = 0;  ///< 0: not measured
    /// Counts for its host's slots: starts, waits or takes part, and is to stay.
    [[nodiscard]] bool is_live() const { return status <= Status::kInWorld && !is_draining; }
    static void fields(auto& archive, auto& m);
  };

  /// `options.shards` is at least `options.sizes.max`, `sizes.min` and `sizes.multiple` at least 1.
  /// Throws InvalidArgument otherwise.
  explicit WorldMachine(const WorldOptions& options, const ResumePoint& resume = {});

  /// Appends what is to be done about `event`. The first event is a HostsRead.
  void on(const WorldEvent& event, WorldActions& actions);

  [[nodiscard]] Phase phase() const noexcept { return phase_; }
  /// The newest one that was announced; before the first, generation 0 without members.
  [[nodiscard]] const World& world() const noexcept { return *world_; }
  /// The newest that is known to be committed.
  [[nodiscard]] StepNumber step() const noexcept { return step_; }
  [[nodiscard]] const HostTable& hosts() const noexcept { return hosts_; }
  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }
  /// Whether --max-changes lets anybody be taken in or drained any more. A job that waits for
  /// enough members takes them in any case.
  [[nodiscard]] bool has_changes_left() const {
    return phase_ == Phase::kWaiting || changes_ < options_.max_changes;
  }
  /// Whether a planned change is under way or waits for its time.
  [[nodiscard]] bool is_change_pending() const { return window_ != Window::kClosed; }
  /// Of all that decides: machines with equal digests do the same, but for the texts, codes and
  /// bytes that they report.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  /// Held or MyState of this generation.
  struct Reply {
    MemberId from = 0;
    std::optional<StepNumber> step;
    bool is_finished = false;
    static void fields(auto& archive, auto& r);
  };
  enum class Window { kClosed, kOpen, kElapsed };

  void handle(const HostsRead& event);
  void handle(const PrepareEnded& event);
  void handle(const MemberSaid& event);
  void handle(const MemberEnded& event);
  void handle(const MemberStopped& event);
  void handle(const HostLost& event);
  void handle(const HostLeaving& event);
  void handle(const Rebalance& event);
  void handle(const WorldTimerElapsed& event);

  void hear(Member& from, const Ready& message);
  void hear(Member& from, const Held& message);
  void hear(Member& from, const MyState& message);
  void hear(Member& from, const Fetched& message);
  void hear(Member& from, const Running& message);
  void hear(Member& from, const Accuse& message);
  void hear(Member& from, const Saved& message);

  // Hosts and processes (world_hosts.cc).
  void tend_hosts();
  void drain_excess(HostId host, std::uint32_t excess);
  void start_members(HostId host);
  void begin_drain(Member& member);
  void say_no_change_is_left(HostId host);
  [[nodiscard]] bool is_anybody_coming() const;
  void fail_host(HostId host);
  void begin_to_settle(HostId host);
  [[nodiscard]] bool has_living(HostId host) const;
  void refuse(const Member& member, const std::string& cause);
  void lose(MemberId id, const std::string& cause);
  void expel(MemberId id, const std::string& cause);
  void judge_accusations();
  void end_silent();

  // Worlds (world_changes.cc).
  [[nodiscard]] bool advance();
  [[nodiscard]] bool is_first_world_due() const;
  [[nodiscard]] bool are_all_hosts_refused() const;
  [[nodiscard]] std::vector<MemberId> choose_members() const;
  [[nodiscard]] std::vector<ShardNumber> cut_for(const std::vector<MemberId>& members) const;
  [[nodiscard]] std::vector<MemberId> living() const;
  [[nodiscard]] Start newest() const;
  [[nodiscard]] bool is_draining(const std::vector<MemberId>& members) const;
  bool consider_change();
  bool finish_holding();
  bool finish_collecting();
  bool has_died_too_often(const Start& start);
  void announce(std::vector<MemberId> members, std::optional<Start> start);
  void dismiss(Member& member);
  void begin_wait();
  void begin_saving(int code, const std::string& cause);
  void choose_writers();
  void end_job(int code, const std::string& cause);

  template <typename T>
  void act(T action) {
    actions_->emplace_back(std::move(action));
  }
  void log(Change change, HostId host, const std::string& cause);
  void log_members_before();
  void start_timer(WorldTimer timer, std::uint32_t subject, std::chrono::milliseconds duration);
  [[nodiscard]] EventRecord about(EventKind kind, HostId host, const std::string& cause) const;
  [[nodiscard]] Member* find(MemberId id);
  [[nodiscard]] const Member* find(MemberId id) const;
  [[nodiscard]] bool has_replied(MemberId id) const;

  const WorldOptions options_;
  HostTable hosts_;
  std::vector<Member> members_;
  MemberId next_member_;
  std::uint64_t next_sequence_;
  std::optional<std::uint64_t> fingerprint_;
  bool is_file_read_ = false;
  std::vector<std::string> lost_with_launcher_;  ///< addresses, until they are logged

  Phase phase_ = Phase::kWaiting;
  WorldPtr world_;
  std::optional<Start> start_;  ///< of the current world, once it is known
  std::vector<Reply> replies_;
  std::vector<Accusation> accusations_;  ///< by member id
  StepNumber step_ = 0;                  ///< newest known to be committed
  StepNumber checkpoint_ = 0;            ///< newest that was read or written
  std::uint32_t size_ = 0;               ///< members by the log
  bool is_broken_ = false;  ///< a member of the world is lost, the next one not yet announced
  std::string cause_;       ///< of the last change
  std::string refusal_;     ///< of the last host refused, where it could not be prepared
  bool is_redone_ = false;  ///< the last change was unplanned
  std::uint64_t fetched_bytes_ = 0;

  Window window_ = Window::kClosed;
  bool is_spacing_ = false;
  bool is_pause_planned_ = true;  ///< that of the current world, in part at least
  std::uint32_t changes_ = 0;
  bool is_limit_told_ = false;  ///< that no change is left, and a host has wanted one

  // Rounds of crashes with the same newest step, and of all members from the same checkpoint.
  bool has_crashed_ = false;
  bool has_run_ = false;           ///< this world has made a step
  bool has_broken_early_ = false;  ///< the last one that broke had not
  StepNumber crash_step_ = 0;
  std::uint32_t crash_rounds_ = 0;
  StepNumber total_checkpoint_ = 0;
  std::uint32_t total_rounds_ = 0;
  ShardSuspects suspects_;  ///< for the text alone

  int end_code_ = 0;  ///< once a member has crashed, or the job is ending
  std::string end_cause_;
  std::vector<MemberId> writers_;
  bool is_saved_ = false;

  WorldActions* actions_ = nullptr;  // only during on()
};

}  // namespace chainmail::membership
