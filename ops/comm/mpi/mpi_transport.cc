// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/mpi/mpi_transport.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// To one peer at once: enough to keep the network busy while the next frame is copied.
constexpr std::size_t kMaxSending = 4;
constexpr milliseconds kLookUpPause{2};
// A look takes a few microseconds: at the longest pause, one percent of a core.
constexpr microseconds kShortestPause{10};
constexpr int kLongestPauseShift = 6;

std::string process_of(int process, int size) {
  return "process " + std::to_string(process) + " of " + std::to_string(size);
}

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<MpiWorld> world, std::shared_ptr<Rendezvous> rendezvous,
                           MpiOptions options)
    : FramedTransport(options, "mpi", std::move(rendezvous)),
      group_(std::move(options.group)),
      world_(std::move(world)),
      missing_ranks_(rendezvous_.get()),
      peers_(names_.size()),
      next_look_up_(Deadline::after(milliseconds{0})) {
  inbox_.emplace(world_);
  if (size() == 1) return;
  rendezvous_->set(key_of(rank()), std::to_string(world_->api().rank()) + " " +
                                       std::to_string(world_->api().size()) + " " +
                                       std::to_string(inbox_->tag()));
}

void MpiTransport::post(Send& send) {
  // Between two ranks a short send may end before its receiver has come, see Group.
  if (Tag::is_point_to_point(send.tag) && send.bytes <= kEagerBytes) {
    return FramedTransport::post(send);
  }
  HeldSend& held = peer(send.peer).held.emplace_back();
  held.original = &send;
  held.copy.peer = send.peer;
  held.copy.tag = send.tag;
  held.copy.header = send.header;
  held.copy.bytes = send.bytes;
  held.copy.data = send.data;
  FramedTransport::post(held.copy);
}

void MpiTransport::go_on(int peer) {
  throw_if_needed(peer);
  send_to(peer);
}

void MpiTransport::inquire(const Transfer& transfer) {
  check_reported_failure();
  // What MPI has been given may end after its receiver has left, but soon.
  if (!closed(transfer.peer).empty()) throw gone(transfer);
  look_up(transfer.peer);
  const auto end =
      peer(transfer.peer).address ? std::nullopt : missing_ranks_.end_of(transfer.peer);
  if (end) close(transfer.peer, end->cause + " before it met this rank");
  if (peer(transfer.peer).address) link(transfer.peer).inquire(transfer);
}

PeerState MpiTransport::state(int peer) const {
  const PeerLink* link = find_link(peer);
  if (link != nullptr && link->has_left()) return PeerState::kLeft;
  if (!closed(peer).empty()) return PeerState::kLost;
  return peers_[static_cast<std::size_t>(peer)].address ? PeerState::kConnected
                                                        : PeerState::kUnknown;
}

void MpiTransport::close(int rank, const std::string& reason) {
  closed(rank) = reason;
  throw_if_needed(rank);
}

void MpiTransport::look_up(int rank) {
  if (peer(rank).address) return;
  const auto text = rendezvous_->try_get(key_of(rank));
  if (!text) return;
  Address address;
  int world_size = 0;
  if (!(std::istringstream(*text) >> address.process >> world_size >> address.inbox)) {
    throw PeerError(
        name(rank).describe() + " published \"" + *text + "\", which is not a place in MPI",
        name(rank).rank);
  }
  const MpiApi& api = world_->api();
  if (world_size != api.size() || address.process == api.rank() || address.process < 0 ||
      address.process >= world_size) {
    throw MismatchError(name(rank).describe() + " is " + process_of(address.process, world_size) +
                        " in MPI_COMM_WORLD, " + name(this->rank()).describe() + " is " +
                        process_of(api.rank(), api.size()) +
                        ": they are not in one MPI job; start all ranks with one mpiexec");
  }
  peer(rank).address = address;
  inbox_->expect(address.process);
}

void MpiTransport::look_up() {
  if (!next_look_up_.has_passed()) return;
  for (const int rank : linked_) {
    if (peer(rank).address) continue;
    if (link(rank).has_output() || inbox_->is_stalled()) look_up(rank);
    next_look_up_ = Deadline::after(kLookUpPause);
  }
}

bool MpiTransport::take(const MpiBuffer& buffer) {
  MpiSender sender;
  FrameHead head;
  if (!buffer.read(sender, head) || sender.rank < 0 || sender.rank >= size() ||
      sender.rank == rank()) {
    throw PeerError("group " + group_ + ": an MPI message of " + std::to_string(buffer.size) +
                    " bytes is damaged");
  }
  PeerLink& from = link(sender.rank);
  if (!peer(sender.rank).address) look_up(sender.rank);  // published before it sent
  try {
    const auto place = from.on_head(head);
    if (!place) return false;
    if (head.length != 0) std::copy_n(buffer.payload(), head.length, *place);
    from.on_frame(head);
  } catch (const StreamError& error) {
    close(sender.rank, error.what());
    return true;
  }
  if (from.has_left() && closed(sender.rank).empty()) close(sender.rank, "has finished and left");
  return true;
}

bool MpiTransport::collect_sent(Peer& to) {
  bool has_moved = false;
  while (!to.sending.empty()) {
    SentBuffer& first = to.sending.front();
    bool is_done = false;
    check_mpi(world_->api(), world_->api().test(first.buffer->request, is_done), "MPI_Test");
    if (!is_done) break;
    for (const HeldSend& held : first.ends) {
      held.original->is_done.store(true, std::memory_order_release);
    }
    world_->give_back(std::move(first.buffer));
    to.sending.pop_front();
    has_moved = true;
  }
  return has_moved;
}

bool MpiTransport::send_to(int rank) {
  Peer& to = peer(rank);
  PeerLink& output = link(rank);
  MpiApi& api = world_->api();
  bool has_moved = collect_sent(to);
  if (!to.address) return has_moved;
  while (to.sending.size() < kMaxSending && output.has_output()) {
    const auto frame = output.next_frame();
    if (!frame) break;
    auto buffer = world_->take_buffer();
    buffer->write({rank_, inbox_->tag()}, frame->head, frame->payload);
    const MpiCode code = api.send(buffer->bytes.get(), static_cast<int>(buffer->size),
                                  to.address->process, to.address->inbox, buffer->request);
    if (code != kMpiSuccess && code != kMpiClosed) {
      to.address.reset();
      close(rank, "cannot be reached (MPI_Isend: " + api.describe(code) + ")");
      return true;
    }
    check_mpi(api, code, "MPI_Isend");
    output.frame_sent(frame->head);
    for (const HeldSend& held : to.held) {
      held.original->moved_bytes = held.copy.moved_bytes;
      held.original->moves = held.copy.moves;
    }
    SentBuffer& last = to.sending.emplace_back();
    last.buffer = std::move(buffer);
    const auto ended = std::find_if(to.held.begin(), to.held.end(),
                                    [](const HeldSend& held) { return held.copy.is_done.load(); });
    if (ended != to.held.end()) last.ends.splice(last.ends.begin(), to.held, ended);
    has_moved = true;
  }
  if (has_moved) collect_sent(to);  // short ones end at once
  return has_moved;
}

bool MpiTransport::progress() {
  if (size() == 1 || has_failed_) return false;
  bool has_moved = inbox_->progress([this](const MpiBuffer& buffer) { return take(buffer); });
  look_up();
  // What has come may have made sends ready.
  for (const int rank : linked_) has_moved |= send_to(rank);
  world_->tidy();
  if (has_moved) idle_waits_ = 0;
  return has_moved;
}

void MpiTransport::wait(microseconds timeout) {
  const microseconds pause = std::min(timeout, kShortestPause * (1 << idle_waits_));
  idle_waits_ = std::min(idle_waits_ + 1, kLongestPauseShift);
  std::unique_lock lock(wake_mutex_);
  wake_.wait_until(lock, std::chrono::steady_clock::now() + pause, [this] { return is_woken_; });
  is_woken_ = false;
}

void MpiTransport::interrupt() noexcept {
  {
    const std::lock_guard lock(wake_mutex_);
    is_woken_ = true;
  }
  wake_.notify_all();
}

}  // namespace chainmail::ops
