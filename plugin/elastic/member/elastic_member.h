// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank of an elastic job: owns its MemberMachine, hears the launcher, and does in the training
// thread what the machine asks for. How a world begins is either the job's callbacks, or, where
// there are none, done by its owner when wait() says so.
//
// One thread, the training one, but for on_word(), which is the launcher client's.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/membership/member/member_machine.h"
#include "base/membership/wire.h"
#include "ops/engine/group.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {

class ElasticMember {
 public:
  /// What only the job can do. Each may throw the group's error.
  struct Callbacks {
    /// Nothing of the world before is used again.
    std::function<void(const std::exception_ptr& why)> leave;
    // None of those below: wait() returns kWorld, and its owner begins the world itself.
    /// The group of `world`, collectively with its members.
    std::function<void(const membership::World& world)> enter;
    /// Collective: those who are no donors get the state of `donors`, ranks of the world. Returns
    /// the bytes that came.
    std::function<std::uint64_t(const std::vector<int>& donors, std::uint64_t& position,
                                bool& is_finished)>
        transfer;
    /// Collective: whether any member of the world says so.
    std::function<bool(bool own)> any;
    /// Nobody has the state: the program's steps are those that it had at announce() until tell()
    /// has read a checkpoint. Returns the one that they are after.
    std::function<std::uint64_t()> begin_anew;
    /// Tells the program of the world, whose checkpoint may be read there, and returns the step
    /// that it is after.
    std::function<std::uint64_t()> tell;
    /// The group of the world that was entered last.
    std::function<std::shared_ptr<ops::Group>()> group;
    /// Whether save() would keep the state after `step`; says so where it would be lost.
    std::function<bool(std::uint64_t step)> can_save;
    /// The state of the last commit, onto disk, by this member alone.
    std::function<void()> save;
  };

  ElasticMember(std::shared_ptr<LauncherClient> launcher, std::uint64_t batch, Callbacks callbacks);
  ~ElasticMember();
  ElasticMember(const ElasticMember&) = delete;
  ElasticMember& operator=(const ElasticMember&) = delete;

  /// The model is built; worlds may have this member, who calls wait() from now on. Nothing more
  /// the second time.
  void announce(std::uint64_t fingerprint);
  /// wait() may not be called any more: nobody has to wait for what this member could save.
  void stop_hearing() noexcept;
  enum class Next {
    kStep,    ///< step() is to be computed
    kRepeat,  ///< what the function does after the commit of the last step: a change of the world
              ///< has interrupted some member in it
    kWorld,   ///< without callbacks: world() is to begin
    kEnd,     ///< this member is to end
    kNothing  ///< within the limit
  };
  /// Of a repetition: on some member the program wants no further step, and has said so.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// Waits for it.
  [[nodiscard]] Next wait(std::optional<std::chrono::milliseconds> limit = std::nullopt);

  // After kWorld, whose members all do this: on_entered() with the world's group, then on_begun(),
  // where somebody is no donor after the transfer of the state. What fails in between is asked
  // about with is_world_over().
  [[nodiscard]] const membership::World& world() const noexcept { return *world_; }
  /// The ranks of the world that have the state, ascending; at least one.
  [[nodiscard]] std::vector<int> donors() const;
  /// Nobody has a state that counts: rank 0's is that of all, unless a checkpoint is read.
  [[nodiscard]] bool begins_anew() const { return start_ && start_->donors.empty(); }
  static constexpr char kNoBeginning[] =
      "nobody has the state of this elastic job any more, and no checkpoint was read: it has to "
      "begin anew, in another process than this one, whose state is not that of the beginning";
  /// Whether this member's state is another one than the program has begun with, so that it can be
  /// no beginning. Set by commits and by what donors give, and by its owner where a checkpoint is
  /// read, whether to the end or not, or rank 0's state is taken over.
  [[nodiscard]] bool is_altered() const noexcept { return is_altered_; }
  void set_altered(bool is_altered) noexcept { is_altered_ = is_altered; }
  /// Ends with the world, when the launcher announces another one; also for groups made later.
  void on_entered(const std::shared_ptr<ops::Group>& group);
  [[nodiscard]] std::uint64_t position() const noexcept { return machine_.position(); }
  /// `position` and `is_finished` are the donors'; `step`: of a checkpoint that was read, in a
  /// world without donors.
  void on_begun(std::uint64_t position, bool is_finished, std::uint64_t bytes,
                std::uint64_t step = 0);
  /// The step that wait() has waited for.
  [[nodiscard]] std::int64_t step() const noexcept { return static_cast<std::int64_t>(step_.step); }
  /// Whether this member wants the world to change after the step.
  [[nodiscard]] bool wants_change() const noexcept { return step_.is_change_wanted; }
  /// All of the step is exchanged, and it counts. `wants_change`: of any member.
  void on_exchanged(bool wants_change);
  /// What a shard takes here.
  void on_shard_time(std::chrono::microseconds time) noexcept {
    launcher_->report_shard_time(time);
  }
  /// After an error of the program's own it goes on: the step that it has not computed is given
  /// again; what follows a commit is over.
  void on_called_again();
  /// The program's function has returned from that step, or from its repetition.
  void on_returned(bool is_finished);
  /// What has ended the step's function: true when the world was the reason, and the step will be
  /// called again in the next one.
  [[nodiscard]] bool is_world_over(const std::exception_ptr& error);
  /// The error of the world's groups that has failed; null where none has.
  [[nodiscard]] std::exception_ptr error_of_world();
  [[nodiscard]] std::vector<std::shared_ptr<ops::Group>> groups();
  /// Those who do not answer this member.
  [[nodiscard]] std::vector<int> silent();
  /// After kEnd: the program has finished, rather than this member been
  /// drained.
  [[nodiscard]] bool is_finished() const noexcept { return machine_.is_finished(); }

 private:
  using Word = LauncherClient::MemberWord;

  void on_word(std::optional<Word> word);
  void send_empty_will() noexcept;
  [[nodiscard]] bool wait_for_word(std::optional<std::chrono::milliseconds> limit);
  [[nodiscard]] bool has_word();
  void hear_next();
  void hear(const membership::LauncherWord& word);
  void hear(const membership::LauncherGone& word);
  void hear(const membership::WriteWill& word);
  void save();
  void begin_world();
  void handle(const membership::MemberEvent& event);
  void act(const membership::MemberAction& action);
  [[nodiscard]] bool has_word_of_newer_world() const;
  [[nodiscard]] bool knows_of_newer_world();
  [[nodiscard]] bool hears_of_newer_world(std::chrono::milliseconds limit);
  [[nodiscard]] bool has_lost_launcher();

  std::shared_ptr<LauncherClient> launcher_;
  Callbacks callbacks_;
  membership::MemberMachine machine_;
  bool is_announced_ = false;
  bool is_altered_ = false;
  bool is_launcher_gone_ = false;
  bool has_exited_ = false;
  bool has_step_ = false;
  bool is_in_function_ = false;  ///< which has committed its step and not returned
  bool is_computing_ = false;    ///< step(), which is not committed
  bool repeats_ = false;
  bool has_ended_ = false;
  bool has_loss_ = false;  ///< since a world has begun, members were lost
  membership::BeginStep step_;
  std::chrono::steady_clock::time_point returned_at_;  ///< the program, from its last step
  std::chrono::steady_clock::duration usual_step_{0};  ///< from there to the commit
  std::chrono::steady_clock::duration pause_{0};       ///< of the last change
  membership::Generation measured_generation_ = 0;
  membership::WorldPtr world_;              ///< the newest that this member was told to connect to
  bool is_entered_ = false;                 ///< its group is made
  std::optional<membership::Start> start_;  ///< of world_, while it is to begin
  std::optional<membership::FetchState> fetch_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::optional<Word>> words_;
  bool hears_ = false;                             ///< wait() is called now and then
  std::vector<std::weak_ptr<ops::Group>> groups_;  ///< what on_word() ends when a world is over
};

}  // namespace chainmail::internal
