// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/mpi/mpi_inbox.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace chainmail::ops {
namespace {

// Received at once; each is a buffer of memory.
constexpr int kMaxComing = 16;

}  // namespace

void check_mpi(MpiApi& api, MpiCode code, const char* call) {
  if (code == kMpiSuccess) return;
  if (code == kMpiClosed) {
    throw MpiError(
        "MPI_Finalize has been called while a group used MPI; destroy Chainmail's groups before",
        code);
  }
  throw MpiError(std::string(call) + ": " + api.describe(code), code);
}

MpiInbox::MpiInbox(std::shared_ptr<MpiWorld> world)
    : world_(std::move(world)), tag_(world_->open_inbox()) {}

MpiInbox::~MpiInbox() {
  for (auto& [number, source] : sources_) {
    for (auto& buffer : source.coming) world_->abandon(std::move(buffer));
  }
}

bool MpiInbox::accept(int source) {
  MpiApi& api = world_->api();
  MpiArrival arrival;
  bool is_found = false;
  check_mpi(api, api.probe(source, tag_, is_found, arrival), "MPI_Improbe");
  if (!is_found) return false;
  if (arrival.bytes < 0 || static_cast<std::size_t>(arrival.bytes) > MpiBuffer::kMaxBytes) {
    throw MpiError("process " + std::to_string(arrival.source) + " of MPI_COMM_WORLD sent " +
                   std::to_string(arrival.bytes) + " bytes, more than a message may have");
  }
  auto buffer = world_->take_buffer();
  buffer->size = static_cast<std::size_t>(arrival.bytes);
  check_mpi(api, api.receive(buffer->bytes.get(), arrival, buffer->request), "MPI_Imrecv");
  sources_[arrival.source].coming.push_back(std::move(buffer));
  ++coming_;
  return true;
}

bool MpiInbox::hand_on(Source& source, const Take& take) {
  bool has_moved = false;
  while (!source.coming.empty()) {
    if (!source.is_stalled) {  // a stalled one was complete before
      bool is_done = false;
      check_mpi(world_->api(), world_->api().test(source.coming.front()->request, is_done),
                "MPI_Test");
      if (!is_done) break;
    }
    // Out of the queue first: what take() throws must not be met again.
    auto buffer = std::move(source.coming.front());
    source.coming.pop_front();
    source.is_stalled = false;
    if (!take(*buffer)) {
      source.coming.push_front(std::move(buffer));
      source.is_stalled = true;
      break;
    }
    --coming_;
    world_->give_back(std::move(buffer));
    has_moved = true;
  }
  return has_moved;
}

bool MpiInbox::progress(const Take& take) {
  bool has_moved = false;
  if (!is_stalled_) {
    while (coming_ < kMaxComing && accept(kMpiAnySource)) has_moved = true;
  } else {
    // More of the stalled one would only take the others' room.
    for (auto& [number, source] : sources_) {
      if (!source.is_stalled && source.coming.empty()) has_moved |= accept(number);
    }
  }
  is_stalled_ = false;
  for (auto& [number, source] : sources_) {
    has_moved |= hand_on(source, take);
    is_stalled_ |= source.is_stalled;
  }
  return has_moved;
}

}  // namespace chainmail::ops
