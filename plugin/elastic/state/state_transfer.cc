// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/state/state_transfer.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <chainmail/objects.h>

#include "base/bytes.h"
#include "base/log.h"
#include "ops/engine/group.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr int kTries = 2;
constexpr std::uint32_t kTag = 0x7e57a7e;  // of no other sends of this group, which is new

/// What a sender says of the state.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t position = 0;
  std::uint64_t is_finished = 0;
  std::vector<std::uint64_t> digests;  ///< of each piece

  static constexpr char kObjectName[] = "announcement of a state";
  static auto fields(auto& self) {
    return std::tie(self.bytes, self.position, self.is_finished, self.digests);
  }
  bool has_state_of(const Announcement& other) const {
    return bytes == other.bytes && digests == other.digests;
  }
};

using PieceNumbers = std::vector<std::uint64_t>;

std::span<const std::byte> piece_of(std::span<const std::byte> bytes, std::size_t piece) {
  const std::size_t begin = piece * kPieceBytes;
  return bytes.subspan(begin, std::min(kPieceBytes, bytes.size() - begin));
}

std::vector<std::uint64_t> digests_of(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> digests;
  for (std::size_t p = 0; p * kPieceBytes < bytes.size(); ++p) {
    digests.push_back(hash64(piece_of(bytes, p)));
  }
  return digests;
}

ops::Collective transfer_of(ops::OpKind kind, int peer) {
  ops::Collective transfer;
  transfer.kind = kind;
  transfer.dtype = ops::DataType::kUInt8;
  transfer.root = peer;
  transfer.tag = kTag;
  transfer.describe_shapes = [] { return std::string("a piece of the job's state"); };
  return transfer;
}

/// Sends or receives whose buffers belong to somebody else: none is left under way.
class Pieces {
 public:
  explicit Pieces(ops::Group& group) : group_(group) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  ~Pieces() {
    for (const auto& operation : operations_) {
      try {
        operation->wait();
      } catch (const std::exception&) {  // NOLINT: finish() tells the first one
      }
    }
  }
  void add(ops::Collective transfer) { operations_.push_back(group_.submit(std::move(transfer))); }
  void finish() {
    for (const auto& operation : operations_) operation->wait();
  }

 private:
  ops::Group& group_;
  std::vector<std::shared_ptr<ops::Operation>> operations_;
};

/// Those of `donors` who send, every piece one of them.
std::vector<int> senders_among(const std::vector<int>& donors, const RegisteredState& state) {
  return state.is_comparable() ? donors : std::vector<int>{donors.front()};
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

/// All ranks say so, and the world is over for them. One of the others tells of it as well: who is
/// to blame may be ended before it has.
[[noreturn]] void blame(Communicator& communicator, int rank, const std::string& what) {
  if (communicator.rank() == (rank == 0 ? 1 : 0)) LogMessage(LogLevel::kWarning) << what;
  // Who comes here late would find its group ended, and blame nobody, or itself for another reason.
  communicator.impl().wait_for_agreement();
  if (rank != communicator.rank()) {
    Communicator::Impl& impl = communicator.impl();
    impl.group->abort(std::make_exception_ptr(PeerError(what, impl.world->number_of(rank))));
  }
  throw BadMember(what, rank);
}

/// Whoever sends `piece` of all of them.
int sender_of(const std::vector<int>& senders, std::uint64_t piece) {
  return senders[piece % senders.size()];
}

/// Whose state is right, since most senders have it: the first of these. Blames one that has
/// another. Where as many have it, so that nobody can tell, all ranks throw that.
int choose_first(Communicator& communicator, const std::vector<int>& senders,
                 const std::vector<Announcement>& said) {
  const auto of = [&](int rank) -> const Announcement& {
    return said[static_cast<std::size_t>(rank)];
  };
  const auto votes = [&](int rank) {
    return std::ranges::count_if(senders,
                                 [&](int other) { return of(rank).has_state_of(of(other)); });
  };
  const int first = *std::ranges::max_element(senders, {}, votes);
  for (const int rank : senders) {
    if (of(rank).has_state_of(of(first))) continue;
    if (votes(rank) == votes(first)) {
      fail_on_all_ranks(communicator,
                        "ranks " + std::to_string(first) + " and " + std::to_string(rank) +
                            " have other bytes of the job's state, and nobody can tell whose are "
                            "right: go on from a checkpoint");
    }
    blame(communicator, rank,
          "rank " + std::to_string(rank) + " has other bytes of the job's state than rank " +
              std::to_string(first) + " and most others: is its memory damaged?");
  }
  return first;
}

/// Sends each rank those of its `wanted` pieces that are this rank's to send.
void send_pieces(ops::Group& group, const std::vector<int>& senders,
                 std::span<const std::byte> bytes, const std::vector<PieceNumbers>& wanted) {
  Pieces sends(group);
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const std::uint64_t p : wanted[static_cast<std::size_t>(rank)]) {
      if (sender_of(senders, p) != group.rank()) continue;
      ops::Collective send = transfer_of(ops::OpKind::kSend, rank);
      send.input = piece_of(bytes, p).data();
      send.count = piece_of(bytes, p).size();
      sends.add(std::move(send));
    }
  }
  sends.finish();
}

/// Returns those that have come with other bytes than were announced.
PieceNumbers receive_pieces(ops::Group& group, const std::vector<int>& senders,
                            std::vector<std::byte>& into, const PieceNumbers& wanted,
                            const std::vector<std::uint64_t>& digests) {
  Pieces receives(group);
  for (const std::uint64_t p : wanted) {
    ops::Collective receive = transfer_of(ops::OpKind::kRecv, sender_of(senders, p));
    receive.output = into.data() + p * kPieceBytes;
    receive.count = piece_of(into, p).size();
    receives.add(std::move(receive));
  }
  receives.finish();
  PieceNumbers wrong;
  for (const std::uint64_t p : wanted) {
    if (hash64(piece_of(into, p)) != digests[p]) wrong.push_back(p);
  }
  return wrong;
}

bool is_any(const std::vector<PieceNumbers>& wanted) {
  return std::ranges::any_of(wanted, [](const PieceNumbers& pieces) { return !pieces.empty(); });
}

/// Of other ranks, so it may be anything.
void check_wanted(Communicator& communicator, const std::vector<PieceNumbers>& wanted,
                  std::size_t pieces) {
  for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
    for (const std::uint64_t p : wanted[rank]) {
      if (p < pieces) continue;
      blame(communicator, static_cast<int>(rank),
            "rank " + std::to_string(rank) + " asks for piece " + std::to_string(p) +
                " of the job's state, which has " + std::to_string(pieces) +
                ": is its memory damaged?");
    }
  }
}

/// `wanted`: of each rank. What has come damaged is asked for once more; then its sender is to
/// blame.
void move_pieces(Communicator& communicator, const std::vector<int>& senders,
                 std::span<const std::byte> own, std::vector<std::byte>& received,
                 const std::vector<std::uint64_t>& digests, std::vector<PieceNumbers> wanted) {
  ops::Group& group = *communicator.impl().group;
  for (int tries = 0; is_any(wanted); ++tries) {
    for (std::size_t rank = 0; tries == kTries && rank < wanted.size(); ++rank) {
      if (wanted[rank].empty()) continue;
      const int sender = sender_of(senders, wanted[rank].front());
      blame(communicator, sender,
            "rank " + std::to_string(sender) + " has sent rank " + std::to_string(rank) +
                " piece " + std::to_string(wanted[rank].front()) +
                " of the job's state with other bytes than it has announced, " +
                std::to_string(kTries) + " times: is its memory damaged?");
    }
    send_pieces(group, senders, own, wanted);
    const PieceNumbers& mine = wanted[static_cast<std::size_t>(communicator.rank())];
    const PieceNumbers wrong = receive_pieces(group, senders, received, mine, digests);
    if (!wrong.empty()) {
      LogMessage(LogLevel::kWarning)
          << wrong.size() << " of " << mine.size()
          << " pieces of the job's state have come damaged, the first from rank "
          << sender_of(senders, wrong.front()) << (tries + 1 < kTries ? ": asked for again" : "");
    }
    wanted = communicator.allgather_obj(wrong);
    check_wanted(communicator, wanted, digests.size());
  }
}

}  // namespace

std::vector<std::byte> transfer_bytes(Communicator& communicator, const std::vector<int>& donors,
                                      const std::vector<int>& senders,
                                      std::span<const std::byte> own, TransferredNumbers& numbers) {
  const bool sends = contains(senders, communicator.rank());
  const bool receives = !contains(donors, communicator.rank());
  Announcement own_words;
  if (sends) own_words = {own.size(), numbers.position, numbers.is_finished, digests_of(own)};
  const std::vector<Announcement> said = communicator.allgather_obj(own_words);
  const int first = choose_first(communicator, senders, said);
  const Announcement& state = said[static_cast<std::size_t>(first)];
  const std::uint64_t pieces = state.bytes / kPieceBytes + (state.bytes % kPieceBytes != 0);
  if (pieces != state.digests.size()) {
    blame(communicator, first,
          "rank " + std::to_string(first) + " announced a state of " + std::to_string(state.bytes) +
              " bytes in " + std::to_string(state.digests.size()) + " pieces");
  }
  PieceNumbers all(state.digests.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<PieceNumbers> wanted(static_cast<std::size_t>(communicator.size()), all);
  for (const int donor : donors) wanted[static_cast<std::size_t>(donor)].clear();
  std::vector<std::byte> received(receives ? state.bytes : 0);
  move_pieces(communicator, senders, own, received, state.digests, std::move(wanted));
  if (receives) numbers = {state.position, static_cast<std::uint8_t>(state.is_finished)};
  return received;
}

std::uint64_t transfer_state(Communicator& communicator, const std::vector<int>& donors,
                             RegisteredState& state, TransferredNumbers& numbers) {
  const std::vector<int> senders = senders_among(donors, state);
  const bool sends = contains(senders, communicator.rank());
  FileImage own;  // as large as the state, so not kept
  if (sends) {
    state.fill(own);
    own.seal();
  }
  const std::vector<std::byte> received =
      transfer_bytes(communicator, donors, senders, own.bytes(), numbers);
  if (!contains(donors, communicator.rank())) state.load(received);
  return received.size();
}

}  // namespace chainmail::internal
