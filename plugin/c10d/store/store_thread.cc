// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/store_thread.h"

#include <cxxabi.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::internal {
namespace {

using Clock = std::chrono::steady_clock;

// A healthy store needs some ten microseconds. Callers that need no answer wait no longer than
// this.
constexpr std::chrono::milliseconds kMoment{200};
// A store that is only slow is not called silent.
constexpr std::chrono::milliseconds kSilence{500};
// What the groups of a rank write in some hours while the store does not answer.
constexpr std::size_t kMostLeft = 4096;

std::string describe(const c10d::Store& store) {
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(&store)) {
    return "the store at " + tcp->getHost() + ":" + std::to_string(tcp->getPort());
  }
  return "the job's store";
}

}  // namespace

/// Shared by the thread and the StoreThread, which may be destroyed first.
struct StoreThread::Shared {
  struct Request {
    Task task;
    bool is_posted = false;  ///< its caller has returned
    bool is_done = false;
    std::any result;
    std::exception_ptr error;
    std::condition_variable done;  ///< its own: hundreds of groups may wait for an answer at once
  };

  explicit Shared(const c10::intrusive_ptr<c10d::Store>& from)
      : name(describe(*from)), is_user_code(is_written_in_python(*from)), base(from) {}

  std::shared_ptr<Request> give(Task task) {
    auto request = std::make_shared<Request>();
    request->task = std::move(task);
    given.notify_one();
    return waiting.emplace_back(std::move(request));
  }
  void serve();
  void carry_out(Request& request);
  void carry_out_if_allowed(Request& request);
  void log_if_posted(const Request& request) const;
  bool is_stuck_for(Clock::duration time) const { return began && Clock::now() - *began > time; }
  TimeoutError no_answer() const;

  const std::string name;
  const bool is_user_code;
  std::mutex mutex;
  std::condition_variable given;
  std::condition_variable ended;
  std::deque<std::shared_ptr<Request>> waiting;
  std::optional<Clock::time_point> began;  ///< what runs now; set while something does
  bool is_stopping = false;
  bool has_ended = false;
  c10::intrusive_ptr<c10d::Store> base;  ///< until it has been cloned
  std::thread thread;

  c10::intrusive_ptr<c10d::Store> store;  ///< the thread's own
  std::exception_ptr loss;                ///< of the connection; the thread's own
};

StoreThread::StoreThread(const c10::intrusive_ptr<c10d::Store>& base)
    : shared_(std::make_shared<Shared>(base)), process_(::getpid()) {
  shared_->thread = std::thread([shared = shared_] { shared->serve(); });
}

StoreThread::~StoreThread() {
  // A forked child has a copy of the thread's reference but no thread, so nothing that the thread
  // was using is destroyed there.
  if (is_of_other_process()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->is_stopping = true;
  shared_->given.notify_all();
  const bool has_ended =
      shared_->thread.get_id() != std::this_thread::get_id() &&
      shared_->ended.wait_for(lock, kMoment, [this] { return shared_->has_ended; });
  std::thread thread = std::move(shared_->thread);
  lock.unlock();
  if (has_ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

bool StoreThread::is_silent() const {
  if (is_of_other_process()) return false;  // there is no thread
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_stuck_for(kSilence);
}

bool StoreThread::is_of_other_process() const noexcept { return process_ != ::getpid(); }

// In a forked child the mutex may be held forever.
void StoreThread::check_process() const {
  if (is_of_other_process()) {
    throw InvalidArgument("this process was forked from a rank (pid " + std::to_string(process_) +
                          "), which alone may use " + shared_->name);
  }
}

std::any StoreThread::run(Task task, Deadline deadline) {
  check_process();
  std::unique_lock lock(shared_->mutex);
  const auto request = shared_->give(std::move(task));
  if (!request->done.wait_for(lock, deadline.left(), [&] { return request->is_done; })) {
    std::erase(shared_->waiting, request);
    request->is_posted = true;
    throw shared_->no_answer();
  }
  if (request->error) std::rethrow_exception(request->error);
  return std::move(request->result);
}

void StoreThread::run_or_post(Task task) {
  check_process();
  std::unique_lock lock(shared_->mutex);
  if (shared_->waiting.size() >= kMostLeft) throw shared_->no_answer();
  const auto request = shared_->give(std::move(task));
  const auto limit = Deadline::after(kMoment);
  while (!request->is_done && !limit.has_passed() && !shared_->is_stuck_for(kMoment)) {
    request->done.wait_for(lock, limit.left());
  }
  if (request->is_done && request->error) std::rethrow_exception(request->error);
  request->is_posted = true;
}

TimeoutError StoreThread::Shared::no_answer() const {
  const auto since = began ? Clock::now() - *began : Clock::duration{0};
  return TimeoutError(
      name + " has not answered" +
      (since > kMoment
           ? " for " +
                 std::to_string(
                     std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) +
                 " ms"
           : " in time") +
      "; look whether the process that serves it (rank 0, torchrun or the launcher) is stopped or "
      "cut off");
}

void StoreThread::Shared::serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    given.wait(lock, [this] { return is_stopping || !waiting.empty(); });
    if (waiting.empty()) break;
    const std::shared_ptr<Request> request = std::move(waiting.front());
    waiting.pop_front();
    began = Clock::now();
    lock.unlock();
    carry_out_if_allowed(*request);
    request->task = nullptr;
    lock.lock();
    began.reset();
    request->is_done = true;
    log_if_posted(*request);
    request->done.notify_all();
  }
  lock.unlock();
  store.reset();
  lock.lock();
  has_ended = true;
  ended.notify_all();
}

// An interpreter that is being finalised kills threads that come back to it, which ends the process
// where that is in a destructor, such as behind each call of a store by a store in Python.
void StoreThread::Shared::carry_out_if_allowed(Request& request) {
  if (!is_user_code) return carry_out(request);
  const struct Visit {
    ~Visit() {
      if (is_allowed) ops::UserCodeGate::leave();
    }
    bool is_allowed = ops::UserCodeGate::enter();
  } visit;
  if (visit.is_allowed) return carry_out(request);
  request.error = std::make_exception_ptr(
      PeerError(name + " is written in Python, and the interpreter is ending"));
}

void StoreThread::Shared::carry_out(Request& request) {
  if (loss) {
    request.error = loss;
    return;
  }
  try {
    if (!store) {
      store = clone_of(*base);
      base.reset();
    }
    request.result = request.task(*store);
  } catch (const abi::__forced_unwind&) {
    throw;  // an interpreter that is being finalised ends threads that want to enter it
  } catch (const c10::DistNetworkError& error) {
    request.error = std::make_exception_ptr(PeerError(
        name + " cannot be reached: " + error.what_without_backtrace() +
        "; the process that serves it (rank 0, torchrun or the launcher) may have ended"));
    // A store does not connect again, and torch writes a stack trace for every try.
    if (store) loss = request.error;
  } catch (...) {
    request.error = std::current_exception();
  }
}

void StoreThread::Shared::log_if_posted(const Request& request) const {
  if (!request.is_posted || !request.error) return;
  try {
    std::rethrow_exception(request.error);
  } catch (const std::exception& error) {
    log_line(LogLevel::kInfo, name + " did not take what was written to it: " + error.what());
  } catch (...) {
  }
}

bool is_written_in_python(const c10d::Store& store) {
  // The class that torch derives for Python has no header.
  return std::string_view(typeid(store).name()).find("PythonStore") != std::string_view::npos;
}

c10::intrusive_ptr<c10d::Store> clone_of(c10d::Store& store) {
  if (is_written_in_python(store)) return c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store);
  return store.clone();
}

}  // namespace chainmail::internal
