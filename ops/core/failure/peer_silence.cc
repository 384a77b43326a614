// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/failure/peer_silence.h"

#include <algorithm>

#include "base/net/socket.h"

namespace chainmail::ops {

std::chrono::milliseconds PeerSilence::enough(std::chrono::milliseconds limit) {
  // Probes are a second apart, and a rank looks once in half a second.
  constexpr std::chrono::milliseconds kApart{1500};
  return std::max(limit - kApart, limit / 2);
}

bool PeerSilence::Line::is_silent() const { return internal::is_silent(fd, enough(limit)); }

void PeerSilence::end_those(const auto& is_chosen) {
  for (const Line& line : lines_) {
    if (is_chosen(line) && line.is_silent()) silent_.insert(line.rank);
  }
  std::erase_if(lines_, is_chosen);
}

void PeerSilence::watch(const void* owner, int rank, int fd, std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  lines_.push_back({owner, rank, fd, limit});
}

void PeerSilence::end(const void* owner, int rank) {
  const std::lock_guard lock(mutex_);
  end_those([&](const Line& line) { return line.owner == owner && line.rank == rank; });
}

void PeerSilence::add(int rank) {
  const std::lock_guard lock(mutex_);
  silent_.insert(rank);
}

void PeerSilence::end(const void* owner) {
  const std::lock_guard lock(mutex_);
  end_those([&](const Line& line) { return line.owner == owner; });
}

std::vector<int> PeerSilence::silent() const {
  const std::lock_guard lock(mutex_);
  std::set<int> all = silent_;
  for (const Line& line : lines_) {
    if (line.is_silent()) all.insert(line.rank);
  }
  return {all.begin(), all.end()};
}

}  // namespace chainmail::ops
