// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an elastic job is asked to be, and where a resumed one goes on.
//
// Values; any thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/membership/size_range.h"
#include "base/membership/types.h"

namespace chainmail::membership {

struct WorldOptions {
  using Milliseconds = std::chrono::milliseconds;

  SizeRange sizes;               ///< --elastic
  std::uint32_t first_size = 1;  ///< -n; the hosts of the first ranks are base
  std::uint32_t shards = 1;      ///< --shards, at least sizes.max
  std::uint32_t spares = 0;      ///< --spares: started beyond sizes.max
  bool has_prepare = false;      ///< --prepare: a gate before a host's first rank
  std::uint32_t max_changes = std::numeric_limits<std::uint32_t>::max();  ///< --max-changes
  std::uint32_t max_deaths_at_step = 3;  ///< so many rounds of crashes at one step end the job

  Milliseconds window{2000};                ///< --elastic-window: planned changes are gathered
  Milliseconds spacing{1000};               ///< between two planned changes, and at least ...
  std::uint32_t spacing_per_pause = 20;     ///< ... so many times the pause of the last one
  Milliseconds reports{50};                 ///< accusations are collected
  Milliseconds stop_limit{4000};            ///< a stopped member is expelled
  Milliseconds elastic_timeout{600'000};    ///< --elastic-timeout: below the minimum
  Milliseconds replies{600'000};            ///< --stall-timeout: for Held or MyState
  Milliseconds drain_timeout{30'000};       ///< --drain-timeout: for the boundary; for the end
  Milliseconds prepare_timeout{3'600'000};  ///< --prepare-timeout
  Milliseconds cool_down{1000};             ///< --cooldown: after a host's first failure ...
  Milliseconds cool_down_most{300'000};     ///< ... doubled with each up to this

  static void fields(auto& archive, auto& o) {
    archive("sizes", o.sizes);
    archive("first_size", o.first_size);
    archive("shards", o.shards);
    archive("spares", o.spares);
    archive("has_prepare", o.has_prepare);
    archive("max_changes", o.max_changes);
    archive("max_deaths_at_step", o.max_deaths_at_step);
    archive("window", o.window);
    archive("spacing", o.spacing);
    archive("spacing_per_pause", o.spacing_per_pause);
    archive("reports", o.reports);
    archive("stop_limit", o.stop_limit);
    archive("elastic_timeout", o.elastic_timeout);
    archive("replies", o.replies);
    archive("drain_timeout", o.drain_timeout);
    archive("prepare_timeout", o.prepare_timeout);
    archive("cool_down", o.cool_down);
    archive("cool_down_most", o.cool_down_most);
  }
};

/// What --resume reads from the job's folder; the defaults are those of a new job.
struct ResumePoint {
  std::uint64_t next_sequence = 0;  ///< of the log
  MemberId next_member = 0;
  Generation generation = 0;         ///< the last one
  std::vector<std::string> members;  ///< addresses of the members that the log ends with

  static void fields(auto& archive, auto& r) {
    archive("next_sequence", r.next_sequence);
    archive("next_member", r.next_member);
    archive("generation", r.generation);
    archive("members", r.members);
  }
};

}  // namespace chainmail::membership
