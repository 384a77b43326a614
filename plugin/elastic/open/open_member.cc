// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/open/open_member.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <chainmail/objects.h>
#include <chainmail/train/agreed_error.h>

#include "base/error.h"
#include "plugin/elastic/member/description.h"
#include "plugin/job/job_connection.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {
namespace {

constexpr char kCommunicator[] = "auto";

bool may_be_of_world(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const AgreedError&) {
    return false;
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

OpenMember::OpenMember() {
  if (!is_in_elastic_job()) {
    throw InvalidArgument("this job keeps its ranks; launcher --elastic starts one that does not");
  }
  communicator_ = make_communicator(make_world_alone(), kCommunicator, {}, "elastic");
  ElasticMember::Callbacks callbacks;
  callbacks.leave = [this](const auto& why) { leave_world(*communicator_, why); };
  member_ = std::make_unique<ElasticMember>(job_connection().launcher, 1, std::move(callbacks));
}

// is_world_over() asks for it.
template <typename Function>
auto OpenMember::note_failure(const Function& function) {
  failure_ = nullptr;
  try {
    return function();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void OpenMember::announce(const std::string& description, std::uint64_t step) {
  first_step_ = step;
  member_->announce(compare_description(*job_connection().launcher, description));
}

ElasticMember::Next OpenMember::wait(std::chrono::milliseconds limit) {
  return member_->wait(limit);
}

const chainmail::World& OpenMember::world() const noexcept { return *communicator_->impl().world; }

void OpenMember::enter() {
  const membership::World& world = member_->world();
  MemberWorld plan{.generation = world.generation, .members = {}, .hosts = world.hosts};
  for (const membership::MemberId member : world.members) {
    plan.members.push_back(static_cast<int>(member));
  }
  note_failure([&] {
    enter_world(*communicator_, make_world(std::move(plan)));
    member_->on_entered(communicator_->impl().group);
  });
  generation_ = world.generation;
  made_.clear();
  numbers_ = {};
  received_ = 0;
  if (begins_anew()) {
    is_altered_ = does_first_say(member_->is_altered());
    if (!has_transfer()) member_->set_altered(is_altered_);
  } else {
    numbers_ = {member_->position(), static_cast<std::uint8_t>(member_->is_finished() ? 1 : 0)};
  }
}

bool OpenMember::does_first_say(bool own) {
  return note_failure([&] { return communicator_->allgather_obj(std::uint8_t{own}).front() != 0; });
}

bool OpenMember::is_donor() const {
  const std::vector<int> donors = member_->donors();
  return std::ranges::find(donors, communicator_->rank()) != donors.end();
}

bool OpenMember::has_transfer() const {
  return member_->donors().size() < static_cast<std::size_t>(communicator_->size());
}

std::vector<std::byte> OpenMember::transfer(std::span<const std::byte> own) {
  return note_failure([&] {
    try {
      const std::vector<int> donors = member_->donors();
      auto state = transfer_bytes(*communicator_, donors, donors, own, numbers_);
      received_ = state.size();
      if (begins_anew()) {
        member_->set_altered(is_altered_);
      } else if (!is_donor()) {
        member_->set_altered(true);
      }
      return state;
    } catch (const BadMember& error) {
      if (error.rank() == communicator_->rank()) throw std::runtime_error(error.what());
      throw PeerError(error.what(), world().number_of(error.rank()));
    }
  });
}

void OpenMember::begun(std::uint64_t step) {
  if (begins_anew() && is_altered_ && does_first_say(step == first_step_)) {
    note_failure([] { throw std::runtime_error(ElasticMember::kNoBeginning); });
  }
  member_->on_begun(numbers_.position, numbers_.is_finished != 0, received_, step);
}

OpenMember::Made OpenMember::make_group(const std::vector<int>& ranks, ops::GroupOptions options) {
  return note_failure([&] {
    chainmail::World& world = *communicator_->impl().world;
    // c10d may use a name again, once its group is gone.
    const int times = made_[options.name]++;
    options.name = "c10d/" + options.name + "/" + std::to_string(times);
    Made made;
    made.rendezvous = world.create_rendezvous(options.name);
    made.group = world.create_subgroup(ranks, std::move(options));
    if (generation_ != 0) member_->on_entered(made.group);
    return made;
  });
}

std::vector<std::vector<std::int64_t>> OpenMember::gather(const std::vector<std::int64_t>& own) {
  return note_failure([&] { return communicator_->allgather_obj(own); });
}

void OpenMember::commit(bool wants_change) { member_->on_exchanged(wants_change); }

void OpenMember::returned(bool is_finished) { member_->on_returned(is_finished); }

// What this member alone or all have found is no matter of the world, whatever has become of that
// meanwhile.
bool OpenMember::is_world_over() {
  const std::exception_ptr found = std::exchange(failure_, nullptr);
  if (found && !may_be_of_world(found)) return false;
  const std::exception_ptr of_world = member_->error_of_world();
  return (of_world || found) && member_->is_world_over(of_world ? of_world : found);
}

}  // namespace chainmail::internal
