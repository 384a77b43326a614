// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One communicator of NCCL and its end: made with a deadline, destroyed when healthy, aborted when
// its group has failed.
//
// Thread rule: one thread calls; abort() and state() come from any. Collective rule: all members
// make, split and call in the same order. Functions throw the group's error, NcclError, PeerError
// (when NCCL says that a remote process failed) or TimeoutError; the communicator is of no use
// then.

#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "ops/comm/nccl/nccl_api.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

/// Who joins.
struct NcclMember {
  std::string name;  ///< of the communicator: "flat", "local/0"; unique in its rendezvous
  int rank = 0;      ///< in the communicator
  std::vector<int> global_ranks;  ///< of its members, as ranks of the job
};

/// How long a call may wait for peers, and what ends it early.
struct NcclWait {
  internal::Deadline deadline;
  std::function<void()> check;  ///< throws when the group has failed
};

class NcclComm {
 public:
  /// Makes a communicator from an id that rank 0 puts into `rendezvous`. TimeoutError names the
  /// ranks that have not come.
  [[nodiscard]] static std::unique_ptr<NcclComm> join(NcclApi& api, NcclMember member,
                                                      Rendezvous& rendezvous, NcclConfig config,
                                                      const NcclWait& wait);
  /// Splits: members of equal `color` share the child. Null for a negative color. `member` is this
  /// rank's place in the child; its rank orders the members.
  [[nodiscard]] std::unique_ptr<NcclComm> split(int color, NcclMember member, NcclConfig config,
                                                const NcclWait& wait);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  int rank() const noexcept { return member_.rank; }
  int size() const noexcept { return static_cast<int>(member_.global_ranks.size()); }
  const std::string& name() const noexcept { return member_.name; }
  NcclApi& api() noexcept { return api_; }

  /// Makes one call of NCCL's, `body(NcclHandle)`, and returns when its work is on the stream.
  template <class Body>
  void call(const char* what, const NcclWait& wait, const Body& body) {
    NcclCode code = NcclCode::kSuccess;
    {
      const std::unique_lock lock = enter(what);
      code = body(handle_);
    }
    settle(what, code, wait);
  }
  /// The same for calls that NCCL puts together: body(NcclHandle, i) for every i below `count`, up
  /// to the first that fails.
  template <class Body>
  void call_together(const char* what, const NcclWait& wait, std::size_t count, const Body& body) {
    NcclCode code = NcclCode::kSuccess;
    {
      const std::unique_lock lock = enter(what);
      code = api_.group_start();
      if (code == NcclCode::kSuccess) {
        NcclCode inside = NcclCode::kSuccess;
        for (std::size_t i = 0; i < count && !is_bad(inside); ++i) inside = body(handle_, i);
        code = api_.group_end();
        if (is_bad(inside)) code = inside;
      }
    }
    settle(what, code, wait);
  }

  /// A CUDA graph refers to it from now on. NCCL does not give it up before that graph is gone, and
  /// would wait for that in the thread that asks: destroy() leaves it to the process, abort() waits
  /// in a thread of its own.
  void set_captured() noexcept { is_captured_ = true; }

  /// What NCCL has found meanwhile; null while all is well. For the watch.
  [[nodiscard]] std::exception_ptr state() noexcept;
  /// Ends what is on streams; nothing can be called afterwards.
  void abort() noexcept;
  /// Frees the communicator after its work is done; the destructor aborts instead. Members need not
  /// do it at the same time, but all must.
  void destroy(const NcclWait& wait);

 private:
  NcclComm(NcclApi& api, NcclMember member, NcclConfig config)
      : api_(api), member_(std::move(member)), config_(std::move(config)) {}
  std::unique_lock<std::mutex> enter(const char* what);
  void settle(const char* what, NcclCode code, const NcclWait& wait);
  std::exception_ptr error_of(const char* what, NcclCode code) const;
  std::string who() const;

  NcclApi& api_;
  const NcclMember member_;
  const NcclConfig config_;  // NCCL may keep the name's pointer as long as the communicator
  std::mutex mutex_;         // around every call but abort's
  NcclHandle handle_;
  std::atomic<bool> is_ended_{false};
  std::atomic<bool> is_captured_{false};
  std::unique_ptr<NcclComm> unfinished_;  // of a failed split: NCCL may write to its handle
};

}  // namespace chainmail::ops
