// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/communicator/family.h"

#include <mutex>
#include <vector>

#include <c10/util/Exception.h>

#include <chainmail/error.h>

#include "base/log.h"
#include "ops/core/error_text.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

namespace {

struct Member {
  std::weak_ptr<World> world;
  std::weak_ptr<ops::Group> group;
};

// Of all worlds: where ranks are threads, a process has several.
struct Families {
  std::mutex mutex;
  std::vector<Member> members;
};

Families& families() {
  static Families all;
  return all;
}

thread_local std::exception_ptr cause_of_unwinding;

std::vector<std::shared_ptr<ops::Group>> family_of(const std::shared_ptr<World>& world) {
  // Nothing may end under the lock for which a pointer that is taken here is the last one.
  std::vector<std::shared_ptr<ops::Group>> groups;
  const std::lock_guard lock(families().mutex);
  for (const Member& member : families().members) {
    const bool is_of_world = !member.world.owner_before(world) && !world.owner_before(member.world);
    if (is_of_world) groups.push_back(member.group.lock());
  }
  return groups;
}

std::exception_ptr cause_in(const std::shared_ptr<World>& world) {
  if (cause_of_unwinding) return cause_of_unwinding;
  for (const std::shared_ptr<ops::Group>& group : family_of(world)) {
    const std::exception_ptr error = group ? group->error() : nullptr;
    if (error) return error;
  }
  return nullptr;
}

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// Whether other ranks may wait for this one, which an exception ends.
bool is_news(const Communicator::Impl& impl) {
  return impl.group->size() > 1 && !impl.is_finalized && !impl.failure &&
         !have_agreed(impl.world_ranks) && !impl.group->error();
}

}  // namespace

void add_to_family(const std::shared_ptr<World>& world, const std::shared_ptr<ops::Group>& group) {
  const std::lock_guard lock(families().mutex);
  std::erase_if(families().members, [](const Member& member) { return member.group.expired(); });
  families().members.push_back({world, group});
}

void remember_cause(const std::exception_ptr& error) {
  if (!cause_of_unwinding) cause_of_unwinding = error;
}

void forget_cause() noexcept { cause_of_unwinding = nullptr; }

void end_for_exception(Communicator& communicator, const std::string& reason) {
  Communicator::Impl& impl = communicator.impl();
  const std::exception_ptr cause = cause_in(impl.world);
  if (!cause) return communicator.abort(reason);
  LogMessage(LogLevel::kWarning)
      << "rank " << impl.world->rank() << " on " << impl.world->host() << " ends communicator "
      << impl.group->options().name << ": " << reason
      << "; the other ranks are told how another one of this job has ended, which may be why: "
      << ops::describe_error(cause).message;
  impl.group->abort(cause);
  if (impl.graph_group) impl.graph_group->abort(cause);
}

void tell_of_current_exception(Communicator& communicator, const std::string& what) {
  if (!is_news(communicator.impl())) return;
  end_for_exception(communicator, what + " has failed: " + text_of_current_exception());
}

void tell_of_unwinding(Communicator& communicator, const std::string& reason) noexcept {
  try {
    if (!is_news(communicator.impl())) return;
    end_for_exception(communicator, reason);
  } catch (const std::exception& error) {
    LogMessage(LogLevel::kWarning)
        << "cannot tell the other ranks of " << communicator.impl().group->options().name << ": "
        << error.what();
  }
}

void end_for_mismatch(Communicator& communicator, const std::string& message) {
  const auto error = std::make_exception_ptr(MismatchError(message));
  communicator.impl().group->abort(error);
  if (communicator.impl().graph_group) communicator.impl().graph_group->abort(error);
  std::rethrow_exception(error);
}

}  // namespace chainmail::internal
