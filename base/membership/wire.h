// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Membership's messages as bytes: the bodies of JobMessage::kFromMember and kToMember
// (base/job/job_protocol.h).
//
// Pure functions; any thread. Every length is checked before use.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/membership/messages.h"
#include "base/membership/types.h"

namespace chainmail::membership {

/// A host of a world, for those who connect to it.
struct HostPlace {
  HostId id = 0;
  std::string name;       ///< as the user wrote it
  std::string addresses;  ///< as its agent reports them, comma-separated, may be empty

  static void fields(auto& archive, auto& place) {
    archive("id", place.id);
    archive("name", place.name);
    archive("addresses", place.addresses);
  }
  bool operator==(const HostPlace&) const = default;
};

/// What a member is told, with the hosts of its world in a NewWorld.
struct LauncherWord {
  LauncherMessage message;
  std::vector<HostPlace> hosts;

  static void fields(auto& archive, auto& word) {
    archive("message", word.message);
    archive("hosts", word.hosts);
  }
};

/// Where the members of a world meet in the launcher's store: each of its keys begins with one of
/// these.
[[nodiscard]] std::vector<std::string> key_prefixes(Generation generation);
/// What those of a world's groups begin with, without what all keys of a job do.
[[nodiscard]] std::string world_prefix(Generation generation);

[[nodiscard]] std::string encode(const LauncherWord& word);
[[nodiscard]] std::string encode(const MemberMessage& message);
/// Throw SystemError(EPROTO) for bytes that are none, or that speak of a world in which a rank has
/// no host or no shards' end.
[[nodiscard]] LauncherWord decode_launcher_word(std::string_view bytes);
[[nodiscard]] MemberMessage decode_member_message(std::string_view bytes);

}  // namespace chainmail::membership
