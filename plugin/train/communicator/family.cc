// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/communicator/family.h"

#include <mutex>
#include <vector>

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
  std::vector<std::shared_ptr<ops::Group>> groups;  // a last owner must not end one under the lock
  const std::lock_guard lock(families().mutex);
  for (const Member& member : families().members) {
    if (member.world.lock() == world) groups.push_back(member.group.lock());
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
  impl.group->abort(cause);
  if (impl.graph_group) impl.graph_group->abort(cause);
}

}  // namespace chainmail::internal
