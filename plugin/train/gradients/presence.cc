// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/presence.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

namespace {

// "rank 1", "ranks 0, 2".
std::string list_ranks(const std::vector<std::vector<char>>& has, std::size_t index, char wanted) {
  std::string text;
  int count = 0;
  for (std::size_t r = 0; r < has.size(); ++r) {
    if (has[r].at(index) != wanted) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(r);
    ++count;
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

void require_equal_presence(Communicator& communicator, const std::vector<NamedTensor>& parameters,
                            const std::vector<Presence>& presence, const std::vector<char>& own) {
  const auto partial = std::find_if(presence.begin(), presence.end(),
                                    [](const Presence& p) { return p.somewhere && !p.everywhere; });
  if (partial == presence.end()) return;
  const std::vector<std::vector<char>> has = communicator.allgather_obj(own);
  const auto index = static_cast<std::size_t>(partial - presence.begin());
  fail_on_all_ranks(
      communicator,
      "parameter '" + parameters[index].name + "' has a gradient on " + list_ranks(has, index, 1) +
          " and none on " + list_ranks(has, index, 0) +
          ". Use zero_fill = true where ranks may take different branches of the model");
}

}  // namespace chainmail::internal
