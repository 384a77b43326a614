// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/command/nodes.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace chainmail::bench {
namespace {

constexpr int kMostNodes = 64;
constexpr int kMostRanks = 1024;

// NODES_DIR is the script's. Gloo must be told the interface, since it would look up the address of
// a host name that nobody knows. The last flags win.
constexpr char kInside[] =
    R"(rsh=$(cat "$NODES_DIR/rsh")
exec "$1" -H "$2" -n "$3" --rsh "$rsh" -x GLOO_SOCKET_IFNAME=eth0 "${@:4}" --nodes=-1)";
static_assert(kNoNodes == -1);
constexpr char kTellsRsh[] = R"( --mpi_rsh="$rsh")";

int parse_count(const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size() || count < 1 || count > kMostRanks) {
    throw InvalidArgument("--per_node: \"" + text + "\" is no number of ranks");
  }
  return count;
}

}  // namespace

std::vector<int> ranks_per_node(const NodesOptions& options) {
  if (options.nodes < 2 || options.nodes > kMostNodes) {
    throw InvalidArgument("--nodes must be from 2 to " + std::to_string(kMostNodes) + ", not " +
                          std::to_string(options.nodes));
  }
  std::vector<int> counts;
  std::string_view rest = options.per_node;
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = rest.find(',');
    counts.push_back(parse_count(std::string(rest.substr(0, comma))));
    is_last = comma == std::string_view::npos;
    if (!is_last) rest.remove_prefix(comma + 1);
  }
  if (counts.size() == 1) counts.resize(static_cast<std::size_t>(options.nodes), counts[0]);
  if (counts.size() != static_cast<std::size_t>(options.nodes)) {
    throw InvalidArgument("--per_node=" + options.per_node + " must be one number or " +
                          std::to_string(options.nodes) + " of them");
  }
  return counts;
}

void check_rate(std::string_view rate) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument("--rate " + std::string(rate) + ": " + std::string(why) +
                           "; valid are tc's, such as 1gbit or 500mbit");
  };
  double number = 0;
  const auto [end, error] =
      std::from_chars(rate.data(), rate.data() + rate.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number > 0) || !std::isfinite(number)) throw bad("no rate");
  std::string unit(end, rate.data() + rate.size());
  std::ranges::transform(unit, unit.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.empty()) return;  // bit/s
  std::string_view rest = unit;
  if (std::string_view("kmgt").find(rest.front()) != std::string_view::npos) {
    rest.remove_prefix(1);
    if (rest.starts_with('i')) rest.remove_prefix(1);
  }
  if (rest != "bit" && rest != "bps") throw bad("\"" + unit + "\" is no unit");
}

std::vector<std::string> nodes_command(const NodesOptions& options, const std::string& folder,
                                       const std::vector<std::string>& program) {
  if (!options.rate.empty()) check_rate(options.rate);
  std::string hosts;
  int ranks = 0;
  int node = 1;
  for (const int count : ranks_per_node(options)) {
    hosts += (hosts.empty() ? "n" : ",n") + std::to_string(node++) + ":" + std::to_string(count);
    ranks += count;
  }
  std::vector<std::string> words = {"bash", folder + "/libexec/chainmail/netns_nodes.sh", "run"};
  if (!options.rate.empty()) words.insert(words.end(), {"--rate", options.rate});
  words.insert(words.end(), {std::to_string(options.nodes), "bash", "-c",
                             std::string(kInside) + (options.tells_rsh ? kTellsRsh : ""), "bench",
                             folder + "/bin/launcher", hosts, std::to_string(ranks)});
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

void run_over_nodes(const NodesOptions& options, std::vector<std::string> command) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  command[0] = self;
  std::vector<std::string> words =
      nodes_command(options, self.parent_path().parent_path(), command);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  throw system_error("cannot start " + words[0]);
}

}  // namespace chainmail::bench
