// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an exception of this rank tells the other ranks of its communicators. A rank that dies ends
// those that it is in, and so the programs of their ranks; whoever shares no communicator with it
// hears of it from those.
//
// Thread-safe.

#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ops/engine/group.h"
#include "plugin/job/world.h"

namespace chainmail {

class Communicator;

namespace internal {

/// A communicator's group belongs to the family of its world. Keeps neither.
void add_to_family(const std::shared_ptr<World>& world, const std::shared_ptr<ops::Group>& group);

/// `error` has ended a communicator that goes as an exception ends this thread's work: those that
/// go after it are its family. Until the next forget_cause() of this thread.
void remember_cause(const std::exception_ptr& error);
/// An operation of this thread begins: there is no such exception.
void forget_cause() noexcept;

/// Ends `communicator` on all ranks. They throw the error of a group of its family that is dead, if
/// there is one: not all of them have seen it, and it may be why this rank fails; this rank's log
/// has `reason`. Otherwise a PeerError that names this rank and says `reason`. Local.
void end_for_exception(Communicator& communicator, const std::string& reason);

/// Whether Communicator::Impl::mark_agreed() has been called so that the end of a communicator of
/// `ranks` of the job is no news.
[[nodiscard]] bool have_agreed(std::vector<int> ranks);

/// In a handler: ends `communicator` for the sake of ranks that wait for what this one will not do,
/// since `what` "has failed: " and the exception's text. Not where they know: it is dead, or all of
/// them have agreed on the exception. Local.
void tell_of_current_exception(Communicator& communicator, const std::string& what);
/// The same in a destructor during unwinding, where nobody knows the exception.
void tell_of_unwinding(Communicator& communicator, const std::string& reason) noexcept;

/// Throws a MismatchError here and on all other ranks of `communicator`, which this rank ends: for
/// what it has found alone. Local.
[[noreturn]] void end_for_mismatch(Communicator& communicator, const std::string& message);

}  // namespace internal
}  // namespace chainmail
