// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Places at which a rank of an elastic job ends itself by SIGKILL, for tests: those that its
// program passes by itself, and those that are seen from what the library sends and receives, since
// a program's own send(), sendmsg(), recvmsg(), fsync() and rename() come before the C library's.
// The last ones damage the state that it gives to others instead. At all points but kFirstByte it
// may also wait until a test has done something.
// Linked into test programs only.
//
// Any thread.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chainmail::faults {

enum class Point : int {
  kNone,
  kForward,         ///< of the first shard
  kBackward,        ///< in the middle of one
  kFirstByte,       ///< one byte of a frame of the exchange is sent
  kBetweenBuckets,  ///< some gradients travel, others are not there yet
  kComplete,        ///< all is exchanged, the optimizer has not stepped
  kCommitted,       ///< commit() has returned
  kReturned,        ///< as the step's function ends
  kHolding,         ///< before the launcher is told that nothing new is begun
  kHeld,            ///< and after it
  kState,           ///< before the launcher is told which step is committed
  kStated,          ///< and after it
  kGroup,           ///< the new group is made
  kFetchBegin,      ///< a donor copies its state
  kFetchMiddle,     ///< a part of the state has been sent, or has come
  kFetchEnd,        ///< all of it has come
  kFetched,         ///< the launcher is told so
  kWorld,           ///< the new group is there, its first step has not begun
  kSave,            ///< save() of a checkpoint has returned, and a thread writes
  kSaveSync,        ///< a file of it is written
  kSaveRename,      ///< and gets its name
  kWrongState,      ///< it is not what others have; by the program
  kFlip,            ///< a byte flips once it has been said what the state is
  kFlipOnce,        ///< and flips back after it has been sent
};

/// Where the ledger of the job lies, a file that all ranks append to, and orders to this member in
/// a file fault.<member> beside it.
void begin(const std::string& folder, int member);
/// Reads an order that has come: the name of a point (kFirstByte: "first_byte"); after the word
/// `wait`, to go on there when a file go.<member> is in the folder. After `from STEP` it stays in
/// its file before `step` is that: a change of the world, such as a move of shards, may come
/// earlier.
void look_for_order(std::int64_t step);
/// A line of the ledger, with the time: whole also where others write at the same time.
void write(const std::string& line);

/// Ends the process, or waits, where that is its order.
void pass(Point point);
[[nodiscard]] bool is_ordered(Point point);
/// The state was damaged as it was ordered; says so in the ledger.
void note_damage();
/// An exchange may begin from here on, or is over.
void set_exchanging(bool is_exchanging);
[[nodiscard]] bool has_sent_in_exchange();
/// A world is over: what is sent now is a state. Begins by itself where the launcher is told of a
/// boundary or of a committed step.
[[nodiscard]] bool is_changing();
/// The world is there. Says in the ledger how many bytes this member has sent for it.
void end_change();
/// What this member has sent: messages to others, and words to the launcher.
struct Sent {
  long messages = 0;
  long words = 0;
};
[[nodiscard]] Sent sent();

}  // namespace chainmail::faults
