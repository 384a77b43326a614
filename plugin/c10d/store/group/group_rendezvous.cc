// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/group/group_rendezvous.h"

#include <unistd.h>

#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "plugin/c10d/store/group/given_up.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

constexpr char kMemberKey[] = "member";
constexpr char kReadyKey[] = "ready";
constexpr char kLeftKey[] = "left";

std::string member_key(int rank) { return std::string(kMemberKey) + "/" + std::to_string(rank); }
std::string written_key(int rank) { return "written/" + std::to_string(rank); }

/// `keys` is the prefix of the group's keys.
void remove_keys_of_all(c10d::Store& store, const std::string& keys, int size) {
  for (int rank = 0; rank < size; ++rank) {
    std::string written = read_if_there(store, keys + written_key(rank)).value_or("");
    for (std::size_t end = 0; (end = written.find('\n')) != std::string::npos;) {
      store.deleteKey(keys + written.substr(0, end));
      written.erase(0, end + 1);
    }
    store.deleteKey(keys + written_key(rank));
  }
  store.deleteKey(StoreLink::news_key_of(keys));
  store.deleteKey(keys + kLeftKey);
}

// A value that rank 0 sets; a TimeoutError says that it did not join.
std::string wait_for_first(ops::Rendezvous& keys, const std::string& key, int rank, int size,
                           Deadline deadline) {
  try {
    return ops::get_from(
        keys, 0, 1, [&key](int /*rank*/) { return key; }, deadline, "joined its group");
  } catch (const TimeoutError&) {
    if (keys.is_silent()) throw;
    throw TimeoutError(did_not_join(0, rank, size), {0});
  }
}

/// `keys` must outlive the result.
std::shared_ptr<ops::Rendezvous> with_attendance(ops::Rendezvous& keys,
                                                 const GroupRendezvous::EndOf& attendance) {
  const std::shared_ptr<ops::Rendezvous> inner(std::shared_ptr<ops::Rendezvous>(), &keys);
  return std::make_shared<ops::LivenessRendezvous>(inner, attendance);
}

/// Failures of one group, under a name that no other group has.
class GroupNews final : public ops::FailureNews {
 public:
  using Failure = std::shared_ptr<std::shared_ptr<ops::FailureState>>;

  /// Also stores the group's failure state in `failure`. Nothing is announced once this rank
  /// `has_left`: nobody would delete it again.
  GroupNews(std::shared_ptr<ops::FailureNews> all, std::string name, Failure failure,
            std::shared_ptr<std::atomic<bool>> has_left)
      : all_(std::move(all)),
        name_(std::move(name)),
        failure_(std::move(failure)),
        has_left_(std::move(has_left)) {}
  void subscribe(const std::string& /*group*/, const std::vector<int>& global_ranks,
                 std::shared_ptr<ops::FailureState> state) override {
    *failure_ = state;
    all_->subscribe(name_, global_ranks, std::move(state));
  }
  void unsubscribe(const std::string& /*group*/) override { all_->unsubscribe(name_); }
  void announce(const std::string& /*group*/, const std::exception_ptr& error) noexcept override {
    if (!*has_left_) all_->announce(name_, error);
  }

 private:
  const std::shared_ptr<ops::FailureNews> all_;
  const std::string name_;
  const Failure failure_;
  const std::shared_ptr<std::atomic<bool>> has_left_;
};

}  // namespace

GroupRendezvous::GroupRendezvous(const c10::intrusive_ptr<c10d::Store>& store,
                                 const std::string& group_name, int rank, int size)
    : store_(store),
      group_keys_("chainmail/" + group_name + "/"),
      rank_(rank),
      size_(size),
      process_(::getpid()),
      has_left_(std::make_shared<std::atomic<bool>>(false)),
      failure_(std::make_shared<std::shared_ptr<ops::FailureState>>()) {
  store_.link()->enter();
}

std::vector<std::string> GroupRendezvous::enter(const std::string& mine, Deadline deadline,
                                                const EndOf& attendance) {
  GivenUp given_up(store_, group_keys_, rank_, size_);
  const EndOf end_of = [&](int rank) -> std::optional<ops::RankEnd> {
    given_up.look(rank);
    return attendance ? attendance(rank) : std::nullopt;
  };
  const auto all_keys = with_attendance(store_, end_of);
  const auto own_keys = with_attendance(*this, end_of);
  given_up.withdraw();
  // Rank 0 chooses the prefix of the group's keys, publishes it, and deletes the key before any
  // rank can go on from this group to the next one of the same name.
  const std::string prefix_key = group_keys_ + "open";
  if (rank_ == 0) {
    const std::string id = to_hex(random_bytes(8));
    keys_ = group_keys_ + id + "/";
    store_.set(prefix_key, id);
  } else {
    try {
      keys_ = group_keys_ + wait_for_first(*all_keys, prefix_key, rank_, size_, deadline) + "/";
    } catch (const TimeoutError&) {
      if (!store_.is_silent()) given_up.tell_first_rank(how_it_gave_up(deadline));
      throw;
    }
  }
  std::vector<std::string> all;
  try {
    all = exchange(*own_keys, kMemberKey, rank_, size_, mine, deadline);
    if (rank_ != 0) static_cast<void>(wait_for_first(*own_keys, kReadyKey, rank_, size_, deadline));
  } catch (...) {
    if (rank_ == 0) {
      store_.remove(prefix_key);
      given_up.tell_absent_ranks(how_it_gave_up(deadline), [this](int rank) {
        return try_get(member_key(rank)).has_value();
      });
    } else {
      given_up.note_failure();
    }
    throw;
  }
  if (rank_ == 0) {
    store_.remove(prefix_key);
    set(kReadyKey, "1");
  }
  has_joined_ = true;
  return all;
}

GroupRendezvous::~GroupRendezvous() { leave(); }

void GroupRendezvous::leave() noexcept {
  if (::getpid() != process_ || has_left_->exchange(true)) return;
  std::string left;
  try {
    left = write_leave();
  } catch (const std::exception& failure) {
    // The store may have gone with the rank that served it.
    log_line(LogLevel::kInfo, "keys of a group stay in the store: " + std::string(failure.what()));
  }
  // A group that was never made counts as failed.
  store_.link()->leave(left, *failure_ == nullptr || (*failure_)->has_failed());
}

bool GroupRendezvous::has_left(int rank) {
  return store_.try_get(keys_ + written_key(rank)).has_value();
}

std::string GroupRendezvous::write_leave() {
  const std::lock_guard lock(mutex_);
  if (!has_joined_) {  // no other rank can have used them
    for (const std::string& key : mine_) store_.remove(keys_ + key);
    return "";
  }
  std::string written;
  for (const std::string& key : mine_) written += key + "\n";
  store_.link()->run_or_post(
      [keys = store_.full_key(keys_), rank = rank_, size = size_, written](c10d::Store& store) {
        store.set(keys + written_key(rank), written);
        if (store.add(keys + kLeftKey, 1) == size) remove_keys_of_all(store, keys, size);
      });
  return store_.full_key(keys_) + kLeftKey;
}

std::shared_ptr<ops::FailureNews> GroupRendezvous::news(
    std::shared_ptr<ops::FailureNews> launcher) const {
  if (!launcher) launcher = store_.link()->news();
  return std::make_shared<GroupNews>(std::move(launcher), store_.full_key(keys_), failure_,
                                     has_left_);
}

void GroupRendezvous::set(const std::string& key, const std::string& value) {
  if (::getpid() != process_) return store_.set(keys_ + key, value);  // which throws
  const std::lock_guard lock(mutex_);  // until it is on its way, before what leave() writes
  if (*has_left_) return;              // nobody would delete it again
  mine_.insert(key);
  store_.set(keys_ + key, value);
}

std::string GroupRendezvous::get(const std::string& key, Deadline deadline) {
  return store_.get(keys_ + key, deadline);
}

std::optional<std::string> GroupRendezvous::try_get(const std::string& key, Deadline deadline) {
  return store_.try_get(keys_ + key, deadline);
}

}  // namespace chainmail::internal
