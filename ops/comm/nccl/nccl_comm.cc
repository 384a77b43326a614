// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/nccl/nccl_comm.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/threads/poll_until.h"

namespace chainmail::ops {
namespace {

// A call that NCCL does in a thread of its own takes tens of microseconds.
constexpr int kYieldsBeforeSleep = 200;
constexpr std::chrono::microseconds kPause{50};
// A call holds its lock for microseconds; one that holds it for longer hangs in NCCL, which then
// has to be aborted around it.
constexpr std::chrono::milliseconds kPatience{200};

void pause(int round) {
  if (round < kYieldsBeforeSleep) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kPause);
  }
}

std::string key_of(const NcclMember& member, const std::string& what) {
  return "nccl/" + member.name + "/" + what;
}

std::string here_key(const NcclMember& member, std::size_t rank) {
  return key_of(member, "here/" + std::to_string(rank));
}

std::vector<int> absent_ranks(const NcclMember& member, Rendezvous& rendezvous) {
  std::vector<int> absent;
  for (std::size_t rank = 0; rank < member.global_ranks.size(); ++rank) {
    if (!rendezvous.try_get(here_key(member, rank)).has_value()) {
      absent.push_back(member.global_ranks[rank]);
    }
  }
  return absent;
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// The store's own wait cannot be ended by a failure of the group: look again and again.
std::string get(Rendezvous& rendezvous, const std::string& key, const NcclWait& wait) {
  std::optional<std::string> value;
  const auto is_set = [&] {
    value = rendezvous.try_get(key);
    if (!value) wait.check();
    return value.has_value();
  };
  if (!internal::poll_until(is_set, wait.deadline)) throw TimeoutError("no " + key);
  return *std::move(value);
}

NcclId obtain_id(NcclApi& api, const NcclMember& member, Rendezvous& rendezvous,
                 const NcclWait& wait) {
  NcclId id{};
  if (member.rank == 0) {
    const NcclCode code = api.make_id(id);
    if (code != NcclCode::kSuccess) {
      throw NcclError(
          "NCCL communicator " + member.name + ": no unique id: " + api.describe(code, {}),
          static_cast<int>(code));
    }
    rendezvous.set(key_of(member, "id"), std::string(id.data(), id.size()));
    return id;
  }
  const std::string text = get(rendezvous, key_of(member, "id"), wait);
  if (text.size() != id.size()) {
    throw MismatchError("NCCL communicator " + member.name + ": an id of " +
                        std::to_string(text.size()) + " bytes instead of " +
                        std::to_string(id.size()) + "; do all ranks run the same program?");
  }
  std::copy(text.begin(), text.end(), id.begin());
  return id;
}

}  // namespace

std::unique_ptr<NcclComm> NcclComm::join(NcclApi& api, NcclMember member, Rendezvous& rendezvous,
                                         NcclConfig config, const NcclWait& wait) {
  rendezvous.set(here_key(member, static_cast<std::size_t>(member.rank)), "1");
  std::unique_ptr<NcclComm> comm(new NcclComm(api, member, std::move(config)));
  try {
    // NCCL's own wait for a rank that never comes cannot always be ended: it begins when all are
    // there.
    for (std::size_t rank = 0; rank < member.global_ranks.size(); ++rank) {
      static_cast<void>(get(rendezvous, here_key(member, rank), wait));
    }
    const NcclId id = obtain_id(api, member, rendezvous, wait);
    NcclCode code = NcclCode::kSuccess;
    {
      const std::unique_lock lock = comm->enter("init");
      code = api.init(comm->handle_, comm->size(), id, member.rank, comm->config_);
    }
    comm->settle("init", code, wait);
  } catch (const TimeoutError&) {
    const std::vector<int> absent = absent_ranks(member, rendezvous);
    throw TimeoutError(
        comm->who() + ": not made in time; " +
            (absent.empty() ? std::string("all ranks have come, but NCCL cannot connect them "
                                          "(NCCL_DEBUG=INFO shows which interface it takes, "
                                          "NCCL_SOCKET_IFNAME chooses)")
                            : "rank " + list(absent) +
                                  " has not come. Do all ranks call the same collectives?"),
        absent);
  }
  return comm;
}

std::unique_ptr<NcclComm> NcclComm::split(int color, NcclMember member, NcclConfig config,
                                          const NcclWait& wait) {
  std::unique_ptr<NcclComm> child(new NcclComm(api_, std::move(member), std::move(config)));
  try {
    // Settled when this communicator is: it cannot be used before, and the child is not there.
    call("split", wait, [&](NcclHandle parent) {
      return api_.split(parent, color, child->rank(), child->handle_, child->config_);
    });
  } catch (...) {
    unfinished_ = std::move(child);
    throw;
  }
  if (color < 0) {
    child->is_ended_ = true;
    return nullptr;
  }
  child->settle("split", config_.is_blocking ? NcclCode::kSuccess : NcclCode::kInProgress, wait);
  return child;
}

NcclComm::~NcclComm() { abort(); }

std::unique_lock<std::mutex> NcclComm::enter(const char* what) {
  std::unique_lock lock(mutex_);
  if (is_ended_) {
    throw NcclError(who() + ": " + what + " after the communicator was ended",
                    static_cast<int>(NcclCode::kInvalidUsage));
  }
  return lock;
}

void NcclComm::settle(const char* what, NcclCode code, const NcclWait& wait) {
  for (int round = 0; code == NcclCode::kInProgress; ++round) {
    wait.check();
    if (wait.deadline.has_passed()) {
      throw TimeoutError(who() + ": " + what + " has not been taken by NCCL in time");
    }
    pause(round);
    const std::unique_lock lock = enter(what);
    const NcclCode asked = api_.async_error(handle_, code);
    if (asked != NcclCode::kSuccess) code = asked;
  }
  if (code != NcclCode::kSuccess) {
    wait.check();  // the reason, where it is known, rather than its effect
    std::rethrow_exception(error_of(what, code));
  }
}

std::exception_ptr NcclComm::error_of(const char* what, NcclCode code) const {
  const std::string text = who() + ": " + what + ": " + api_.describe(code, handle_);
  if (code == NcclCode::kRemoteError) return std::make_exception_ptr(PeerError(text));
  return std::make_exception_ptr(NcclError(text, static_cast<int>(code)));
}

std::exception_ptr NcclComm::state() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || is_ended_ || handle_.comm == nullptr) return nullptr;
  NcclCode code = NcclCode::kSuccess;
  const NcclCode asked = api_.async_error(handle_, code);
  if (asked != NcclCode::kSuccess) code = asked;
  if (code == NcclCode::kSuccess || code == NcclCode::kInProgress) return nullptr;
  return error_of("on its streams", code);
}

void NcclComm::abort() noexcept {
  // GCC 12's thread sanitizer does not see the timed locks of a std::timed_mutex.
  std::unique_lock lock(mutex_, std::try_to_lock);
  const auto limit = internal::Deadline::after(kPatience);
  while (!lock.owns_lock() && !limit.has_passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    static_cast<void>(lock.try_lock());
  }
  if (is_ended_.exchange(true) || handle_.comm == nullptr) return;
  if (is_captured_) {
    try {
      std::thread([&api = api_, handle = handle_] {
        static_cast<void>(api.abort(handle));
      }).detach();
      return;
    } catch (const std::system_error&) {
      // No thread to be had: wait here.
    }
  }
  static_cast<void>(api_.abort(handle_));
}

void NcclComm::destroy(const NcclWait& wait) {
  if (is_captured_) {
    is_ended_ = true;
    return;
  }
  // Flushes what NCCL's proxy threads still send; without it, destroying can end peers' transfers.
  call("finalize", wait, [this](NcclHandle comm) { return api_.finalize(comm); });
  const std::unique_lock lock = enter("destroy");
  is_ended_ = true;
  static_cast<void>(api_.destroy(handle_));
}

std::string NcclComm::who() const {
  return "NCCL communicator " + member_.name + ", rank " +
         std::to_string(member_.global_ranks.at(static_cast<std::size_t>(member_.rank)));
}

}  // namespace chainmail::ops
