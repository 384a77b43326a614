// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The rank's end of the socket to its launcher: key-value store, failure reports, progress.
//
// Thread-safe: requests of several threads are in flight together; one thread reads. No call blocks
// without a deadline. When the launcher closes the socket, every call and every subscribed group
// fails with PeerError.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/deadline.h"
#include "base/job/job_protocol.h"
#include "base/membership/member/member_events.h"
#include "base/membership/wire.h"
#include "base/unique_fd.h"
#include "ops/core/error_text.h"
#include "ops/core/failure/failure_news.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/liveness.h"
#include "ops/engine/group.h"

namespace chainmail::internal {

class LauncherClient final : public ops::FailureNews,
                             public ops::ProgressCounter,
                             public ops::RankLiveness {
 public:
  /// Takes the connected socket `fd` over, marks it close-on-exec, says hello and waits for the
  /// welcome. Throws TimeoutError or PeerError when the launcher does not answer.
  LauncherClient(int fd, std::uint32_t generation, std::chrono::milliseconds timeout);
  LauncherClient(const LauncherClient&) = delete;
  LauncherClient& operator=(const LauncherClient&) = delete;
  ~LauncherClient() override;

  const Welcome& welcome() const noexcept { return welcome_; }

  // TimeoutError when the launcher, stopped perhaps, does not answer or take the message in time;
  // without a deadline that is after a minute.
  void set(const std::string& key, const std::string& value, Deadline deadline = usual());
  /// set() without a reply; a launcher that does not read for 200 ms gets it later.
  void post_set(const std::string& key, const std::string& value);
  /// Waits until the key exists; TimeoutError names it.
  std::string get(const std::string& key, Deadline deadline);
  std::optional<std::string> try_get(const std::string& key, Deadline deadline = usual());
  std::int64_t add(const std::string& key, std::int64_t amount, Deadline deadline = usual());
  /// c10d's compareSet: returns the value afterwards.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Deadline deadline = usual());
  void append(const std::string& key, const std::string& value, Deadline deadline = usual());
  bool remove(const std::string& key, Deadline deadline = usual());
  std::int64_t count(Deadline deadline = usual());
  /// Records how far training is: one store; the reading thread reports it twice a second. Nothing
  /// where begin_step() is called.
  void report_step(std::uint64_t step) noexcept {
    if (world_.load(std::memory_order_relaxed) == 0) steps_.store(step, std::memory_order_relaxed);
  }
  /// The same in an elastic job, whose members have begun to count at different times: operations
  /// are counted from here on.
  void begin_step(membership::Generation world, std::uint64_t step) noexcept;
  /// What a shard of an elastic job takes here; told with the steps.
  void report_shard_time(std::chrono::microseconds time) noexcept {
    shard_us_.store(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
  }
  void count_operation() noexcept override { operations_.fetch_add(1, std::memory_order_relaxed); }

  /// Of an elastic job: what the launcher tells this member, or its agent when that is gone.
  using MemberWord =
      std::variant<membership::LauncherWord, membership::LauncherGone, membership::WriteWill>;
  /// It comes in the reading thread; nothing once the connection has ended. What came before is
  /// given at once. Must not throw, nor call listen(). Throws InvalidArgument for a second one; an
  /// empty one ends the first.
  using MemberListener = std::function<void(std::optional<MemberWord> word)>;
  void listen(MemberListener listener);
  void send_to_launcher(const membership::MemberMessage& message);
  /// Of an elastic job: this program needs one of fixed size. The launcher ends the process.
  void ask_for_fixed_size();
  /// After a LauncherGone, to the agent.
  void send_will(const WillBody& will);

  void subscribe(const std::string& group, const std::vector<int>& global_ranks,
                 std::shared_ptr<ops::FailureState> state) override;
  void unsubscribe(const std::string& group) override;
  void announce(const std::string& group, const std::exception_ptr& error) noexcept override;
  /// Asks the launcher at most ten times a second, for all callers together. `rank` is global.
  std::optional<ops::RankEnd> end_of(int rank) override;

 private:
  struct Reply {
    std::uint8_t status = 0;
    std::string value;
  };
  /// Of a frame in the stream of bytes to the launcher.
  struct FramePosition {
    std::uint64_t end = 0;
    bool is_behind_others = false;  ///< that have not been sent
  };
  struct Subscription {
    std::vector<int> global_ranks;
    std::shared_ptr<ops::FailureState> state;
  };

  /// The deadline of requests without one of their own.
  static Deadline usual();
  void join_reader();
  void check_process() const;
  void send_frame(JobMessage type, std::string body, Deadline deadline);
  void post_frame(JobMessage type, std::string body);
  FramePosition enqueue_frame(JobMessage type, std::string body);
  bool wait_until_sent(std::uint64_t end, Deadline deadline);
  bool send_up_to(std::uint64_t end);
  void flush_unsent() noexcept;
  Reply request(JobMessage type, const std::string& arguments, const std::string& what,
                Deadline deadline);
  void read_loop() noexcept;
  bool read_some(FrameReader& reader);
  void report_progress();
  void handle(const Frame& frame);
  void on_launcher_gone(const std::string& why);
  std::optional<std::string> fetch_ended_ranks();
  void tell_listener(std::optional<MemberWord> word);
  void rank_lost(int rank, std::exception_ptr error);
  void group_failed(const std::string& group, std::exception_ptr error);
  void forget_before(const membership::World& world);
  void fail_groups(const std::exception_ptr& error) noexcept;
  void fail_everything(std::exception_ptr error) noexcept;

  const UniqueFd fd_;
  const UniqueFd wake_fd_;  ///< an eventfd that ends the reading thread
  const std::uint32_t generation_;
  const pid_t pid_;
  Welcome welcome_;

  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> operations_before_{0};  ///< the step
  std::atomic<membership::Generation> world_{0};     ///< of the step
  std::atomic<std::uint64_t> shard_us_{0};
  // The reading thread's: what was reported last, and when.
  std::uint64_t reported_steps_ = 0;
  std::uint64_t reported_operations_ = 0;
  membership::Generation reported_world_ = 0;
  std::chrono::steady_clock::time_point reported_at_;

  std::mutex write_mutex_;
  std::string unsent_;      ///< frames that the launcher has not taken yet
  std::uint64_t sent_ = 0;  ///< bytes before unsent_
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_welcome_ = false;
  std::exception_ptr gone_;  ///< set once the connection is unusable
  std::uint32_t next_id_ = 1;
  std::map<std::uint32_t, std::optional<Reply>> pending_;
  std::map<std::string, Subscription> subscriptions_;
  // Failures may be reported before the group that they concern is created here. In an elastic job
  // they are forgotten with the world that they were in.
  std::vector<std::pair<int, std::exception_ptr>> lost_ranks_;  ///< the first is the cause
  std::map<int, ops::RankEnd> ended_ranks_;
  Deadline next_look_ = Deadline::after(std::chrono::milliseconds{0});  ///< at ended_ranks_
  std::chrono::milliseconds reading_time_{0};  ///< between looks, besides kAttendancePeriod
  std::map<std::string, std::exception_ptr> failed_groups_;
  membership::Generation announced_world_ = 0;
  std::mutex listener_mutex_;  ///< held while it is called
  MemberListener listener_;
  std::vector<std::optional<MemberWord>> untold_;  ///< until there is a listener
  std::thread reader_;
};

/// The error of an announcement; `culprit` is the rank of a PeerError.
[[nodiscard]] std::exception_ptr rebuild_error(const ops::ErrorParts& parts, int culprit);

}  // namespace chainmail::internal
