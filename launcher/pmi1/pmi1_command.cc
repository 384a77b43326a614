// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmi1/pmi1_command.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {

std::map<std::string, std::string> parse_pmi1(std::string_view line) {
  std::map<std::string, std::string> words;
  std::size_t at = 0;
  while (at < line.size()) {
    if (line[at] == ' ') {
      ++at;
      continue;
    }
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const std::size_t equals = word.find('=');
    // What has no '=' is a remark, such as the text of an abort.
    if (equals != std::string_view::npos) {
      words.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
    at = end;
  }
  if (!words.contains("cmd") && !words.contains("mcmd")) {
    throw SystemError("PMI-1: a line without a command: " + std::string(line.substr(0, 80)),
                      EPROTO);
  }
  return words;
}

std::string pmi1_process_mapping(const std::vector<std::uint32_t>& node_of_rank) {
  struct Block {
    std::uint32_t node;
    std::uint32_t nodes;
    std::uint32_t ranks;
  };
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < node_of_rank.size();) {
    const std::uint32_t node = node_of_rank[at];
    const std::size_t begin = at;
    while (at < node_of_rank.size() && node_of_rank[at] == node) ++at;
    const auto ranks = static_cast<std::uint32_t>(at - begin);
    const bool goes_on = !blocks.empty() && blocks.back().ranks == ranks &&
                         blocks.back().node + blocks.back().nodes == node;
    if (goes_on) {
      ++blocks.back().nodes;
    } else {
      blocks.push_back({node, 1, ranks});
    }
  }
  std::string text = "(vector";
  for (const Block& block : blocks) {
    text += ",(" + std::to_string(block.node) + "," + std::to_string(block.nodes) + "," +
            std::to_string(block.ranks) + ")";
  }
  return text + ")";
}

}  // namespace chainmail::launch
