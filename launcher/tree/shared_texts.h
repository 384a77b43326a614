// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Texts that the launcher sends to every host, once over each connection: an agent keeps what it
// got and hands it to the agents behind it, so that nothing grows with hosts times length.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/channel/wire.h"

namespace chainmail::launch {

/// A text as it travels: encoded kSharedPart messages, the last of them empty.
using SharedFrames = std::vector<std::shared_ptr<const std::string>>;
[[nodiscard]] SharedFrames cut_shared(std::uint32_t number, std::string_view text);

/// What an agent has got so far.
class SharedTexts {
 public:
  /// All texts together; an agent that is sent more has a launcher that speaks nonsense.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;

  /// A kSharedPart or kSharedDrop message. Throws SystemError(EPROTO).
  void on_frame(const internal::Frame& frame);
  /// Throws SystemError(EPROTO) when it has not come, or not whole.
  [[nodiscard]] std::string text(std::uint32_t number) const;
  [[nodiscard]] const SharedFrames& frames(std::uint32_t number) const;

 private:
  struct Text {
    SharedFrames frames;
    std::size_t bytes = 0;  // without heads
    bool is_whole = false;
  };
  const Text& whole(std::uint32_t number) const;

  std::map<std::uint32_t, Text> texts_;
  std::size_t bytes_ = 0;
};

}  // namespace chainmail::launch
