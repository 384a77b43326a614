// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/state/state_transfer.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <chainmail/objects.h>

#include "base/bytes.h"
#include "ops/engine/group.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::uint32_t kTag = 0x7e57a7e;  // of no other sends of this group, which is new

/// What the first donor says of the state.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint64_t position = 0;
  std::uint64_t is_finished = 0;
  std::vector<std::uint64_t> digests;  ///< of each piece

  static constexpr char kObjectName[] = "announcement of a state";
  static auto fields(auto& self) {
    return std::tie(self.bytes, self.position, self.is_finished, self.digests);
  }
};

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

void send_pieces(ops::Group& group, const std::vector<int>& donors, const std::vector<int>& senders,
                 std::span<const std::byte> bytes, std::size_t pieces) {
  const auto own = std::ranges::find(senders, group.rank()) - senders.begin();
  Pieces sends(group);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (contains(donors, rank)) continue;
    for (auto p = static_cast<std::size_t>(own); p < pieces; p += senders.size()) {
      ops::Collective send = transfer_of(ops::OpKind::kSend, rank);
      send.input = piece_of(bytes, p).data();
      send.count = piece_of(bytes, p).size();
      sends.add(std::move(send));
    }
  }
  sends.finish();
}

void receive_pieces(ops::Group& group, const std::vector<int>& senders,
                    std::vector<std::byte>& into, const std::vector<std::uint64_t>& digests) {
  Pieces receives(group);
  for (std::size_t p = 0; p < digests.size(); ++p) {
    ops::Collective receive = transfer_of(ops::OpKind::kRecv, senders[p % senders.size()]);
    receive.output = into.data() + p * kPieceBytes;
    receive.count = piece_of(into, p).size();
    receives.add(std::move(receive));
  }
  receives.finish();
  for (std::size_t p = 0; p < digests.size(); ++p) {
    if (hash64(piece_of(into, p)) == digests[p]) continue;
    const int donor = senders[p % senders.size()];
    throw BadDonor("rank " + std::to_string(donor) + " sent piece " + std::to_string(p) +
                       " of the job's state with other bytes than rank " +
                       std::to_string(senders.front()) + " has",
                   donor);
  }
}

}  // namespace

std::vector<std::byte> transfer_bytes(Communicator& communicator, const std::vector<int>& donors,
                                      const std::vector<int>& senders,
                                      std::span<const std::byte> own, TransferredNumbers& numbers) {
  const bool sends = contains(senders, communicator.rank());
  Announcement said;
  if (sends) said = {own.size(), numbers.position, numbers.is_finished, digests_of(own)};
  const Announcement first = communicator.bcast_obj(said, donors.front());
  ops::Group& group = *communicator.impl().group;
  if (sends) {
    if (first.bytes != said.bytes) {
      throw BadDonor("rank " + std::to_string(communicator.rank()) + " has " +
                         std::to_string(said.bytes) + " bytes of state, rank " +
                         std::to_string(donors.front()) + " " + std::to_string(first.bytes),
                     communicator.rank());
    }
    send_pieces(group, donors, senders, own, first.digests.size());
  }
  if (contains(donors, communicator.rank())) return {};
  std::vector<std::byte> received(first.bytes);
  if ((received.size() + kPieceBytes - 1) / kPieceBytes != first.digests.size()) {
    throw MismatchError("rank " + std::to_string(donors.front()) + " announced a state of " +
                        std::to_string(first.bytes) + " bytes in " +
                        std::to_string(first.digests.size()) + " pieces");
  }
  receive_pieces(group, senders, received, first.digests);
  numbers = {first.position, static_cast<std::uint8_t>(first.is_finished)};
  return received;
}

std::uint64_t transfer_state(Communicator& communicator, const std::vector<int>& donors,
                             RegisteredState& state, TransferredNumbers& numbers) {
  const std::vector<int> senders = senders_among(donors, state);
  const bool sends = contains(senders, communicator.rank());
  const auto own = sends ? state.save() : std::span<const std::byte>();
  const std::vector<std::byte> received =
      transfer_bytes(communicator, donors, senders, own, numbers);
  if (!contains(donors, communicator.rank())) state.load(received);
  return received.size();
}

}  // namespace chainmail::internal
