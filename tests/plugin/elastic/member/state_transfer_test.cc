// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What members say when they give each other the state, with ranks that say something else.

#include "plugin/elastic/state/state_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <chainmail/objects.h>
#include <chainmail/train/agreed_error.h>

#include "plugin/train/communicator/fields.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail::internal {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

std::vector<std::byte> some_bytes(int seed) {
  std::vector<std::byte> bytes(std::size_t{3} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return bytes;
}

// What this rank gets; a donor's state is not negative. `silent` gives nothing.
std::vector<std::byte> transfer(Communicator& communicator, const std::vector<int>& states,
                                int silent = -1) {
  std::vector<int> donors;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (states[rank] >= 0) donors.push_back(static_cast<int>(rank));
  }
  std::vector<int> senders = donors;
  std::erase(senders, silent);
  const int seed = states[static_cast<std::size_t>(communicator.rank())];
  const auto own = seed < 0 ? std::vector<std::byte>() : some_bytes(seed);
  TransferredNumbers numbers{static_cast<std::uint64_t>(seed < 0 ? 0 : 5), 0};
  auto received = transfer_bytes(communicator, donors, senders, own, numbers);
  EXPECT_EQ(numbers.position, 5U);
  return received;
}

TEST(StateTransfer, GivesThoseWithoutAStateTheOthers) {
  testing::with_communicator({2, 2}, "flat", {}, [](const CommPtr& comm) {
    const bool is_donor = comm->rank() % 2 == 0;
    const auto received = transfer(*comm, {3, -1, 3, -1});
    EXPECT_EQ(received, is_donor ? std::vector<std::byte>() : some_bytes(3));
  });
}

// On one node each, all blame `culprit`, or hear from those who have that they do; `rogue` plays
// that rank, if it is not to transfer as the others do.
void expect_blame(const std::vector<int>& states, int silent, int culprit, const std::string& text,
                  const std::function<void(Communicator&)>& rogue = {}) {
  std::atomic<int> blamed{0};
  const auto errors = testing::errors_with_communicator(
      std::vector<int>(states.size(), 1), "flat", [&](const CommPtr& comm) {
        if (rogue && comm->rank() == culprit) return rogue(*comm);
        try {
          (void)transfer(*comm, states, silent);
          throw std::runtime_error("nobody was blamed");
        } catch (const BadMember& error) {
          EXPECT_EQ(error.rank(), culprit);
          EXPECT_THAT(error.what(), HasSubstr(text));
          ++blamed;
        }
      });
  EXPECT_GT(blamed, 0);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (static_cast<int>(rank) == culprit) continue;
    EXPECT_THAT(errors[rank], AnyOf("", HasSubstr(text))) << "rank " << rank;
  }
}

TEST(StateTransfer, BlamesWhoHasAnotherStateThanMost) {
  expect_blame({3, 4, 3, -1}, -1, 1, "rank 1 has other bytes");
}

// One that went on from it would be the only holder, right or wrong.
TEST(StateTransfer, ATieIsAnErrorOfAllRanks) {
  for (const std::vector<int>& states : {std::vector<int>{3, 4, -1}, {3, 4, 5}, {4, 3, 3, 4}}) {
    testing::with_communicator(std::vector<int>(states.size(), 1), "flat", {},
                               [&](const CommPtr& comm) {
                                 try {
                                   (void)transfer(*comm, states);
                                   ADD_FAILURE() << "somebody's state was taken";
                                 } catch (const MismatchError& error) {
                                   EXPECT_NE(dynamic_cast<const AgreedError*>(&error), nullptr);
                                   EXPECT_THAT(error.what(), HasSubstr("nobody can tell"));
                                 }
                               });
  }
}

// What a rank says first, by the names that it has on the way.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t position = 0;
  std::uint64_t is_finished = 0;
  std::vector<std::uint64_t> digests;

  static constexpr char kObjectName[] = "announcement of a state";
  static auto fields(auto& self) {
    return std::tie(self.bytes, self.position, self.is_finished, self.digests);
  }
};

TEST(StateTransfer, BlamesWhoAsksForAPieceThatThereIsNot) {
  for (const std::uint64_t piece : {std::uint64_t{3}, ~std::uint64_t{0}}) {
    expect_blame(
        {3, 3, 3, -1}, 2, 2,
        "rank 2 asks for piece " + std::to_string(piece) + " of the job's state, which has 3",
        [piece](Communicator& comm) {
          (void)comm.allgather_obj(Announcement());
          (void)comm.allgather_obj(std::vector<std::uint64_t>{piece});
        });
  }
}

TEST(StateTransfer, BlamesWhoAnnouncesFewerPiecesThanBytes) {
  expect_blame({3, -1}, -1, 0, "announced a state of 3000000 bytes in 1 pieces",
               [](Communicator& comm) {
                 (void)comm.allgather_obj(Announcement{3'000'000, 5, 0, {1}});
               });
}

}  // namespace
}  // namespace chainmail::internal
