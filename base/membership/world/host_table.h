// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts of an elastic job: how many ranks each should have, whether its gate is open, and
// whether it waits after a failure.
//
// Pure; one thread. Part of WorldMachine, which starts and drains members by it.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/membership/types.h"
#include "base/membership/world/world_events.h"
#include "base/membership/world/world_options.h"

namespace chainmail::membership {

class HostTable {
 public:
  enum class Gate {
    kClosed,
    kPreparing,
    kOpen,
    kRefused,  ///< until its line goes and comes back
  };

  struct Host {
    std::string address;
    std::uint32_t file_slots = 0;
    std::uint32_t base_slots = 0;  ///< ranks of -n; no edit takes them away
    Gate gate = Gate::kClosed;
    bool is_leaving = false;
    bool is_cooling = false;
    std::uint32_t failures = 0;

    /// The ranks that it should have.
    [[nodiscard]] std::uint32_t slots() const;
    static void fields(auto& archive, auto& h) {
      archive("address", h.address);
      archive("file_slots", h.file_slots);
      archive("base_slots", h.base_slots);
      archive("gate", h.gate);
      archive("is_leaving", h.is_leaving);
      archive("is_cooling", h.is_cooling);
      archive("failures", h.failures);
    }
  };

  /// The first lines for `first_size` ranks are base.
  explicit HostTable(std::uint32_t first_size) : base_left_(first_size) {}

  /// Takes the file's new contents; returns the base hosts that have fewer slots in it than before
  /// and than they have ranks of -n.
  std::vector<HostId> read(const std::vector<HostLine>& lines);

  /// Counts a failure; the host cools down.
  void fail(HostId host);
  /// How long it waits after the last failure: doubled with each, with up to a quarter more or less
  /// that depends on the host and the number alone.
  [[nodiscard]] std::chrono::milliseconds wait_after_failure(HostId host,
                                                             const WorldOptions& options) const;

  [[nodiscard]] Host& operator[](HostId host) { return hosts_.at(host); }
  [[nodiscard]] const Host& operator[](HostId host) const { return hosts_.at(host); }
  [[nodiscard]] HostId size() const { return static_cast<HostId>(hosts_.size()); }

  static void fields(auto& archive, auto& t) {
    archive("hosts", t.hosts_);
    archive("base_left", t.base_left_);
  }

 private:
  std::vector<Host> hosts_;
  std::uint32_t base_left_;
};

}  // namespace chainmail::membership
