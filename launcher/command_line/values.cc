// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr int kMaxRanks = 65536;

std::optional<int> number_in(std::string_view text, int least, int most) {
  const auto value = whole_number(text);
  return value && *value >= least && *value <= most ? value : std::nullopt;
}

int number_or_refuse(const std::string& flag, const std::string& text, int least) {
  if (const auto value = number_in(text, least, kMaxRanks)) return *value;
  throw UsageError(flag + " must be a number from " + std::to_string(least) + " to " +
                   std::to_string(kMaxRanks) + ", not '" + text + "'");
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

struct BindName {
  const char* name;
  BindTo to;
};
constexpr std::array<BindName, 11> kBindNames = {{{"share", BindTo::kShare},
                                                  {"none", BindTo::kNone},
                                                  {"hwthread", BindTo::kHwthread},
                                                  {"core", BindTo::kCore},
                                                  {"l3cache", BindTo::kL3},
                                                  {"l3", BindTo::kL3},
                                                  {"numa", BindTo::kNuma},
                                                  {"socket", BindTo::kSocket},
                                                  {"package", BindTo::kSocket},
                                                  {"cpu", BindTo::kHwthread},
                                                  {"cores", BindTo::kCore}}};

std::optional<BindTo> bind_to_named(const std::string& name) {
  for (const BindName& known : kBindNames) {
    if (name == known.name) return known.to;
  }
  return std::nullopt;
}

bool is_part_of_node(BindTo to) {
  return to == BindTo::kL3 || to == BindTo::kNuma || to == BindTo::kSocket;
}

// "pe=4", "oversubscribe", "overload-allowed" after a ':' of --map-by or --bind-to.
void apply_modifier(const std::string& flag, const std::string& whole, const std::string& modifier,
                    Options& options) {
  if (modifier.rfind("pe=", 0) == 0) {
    const auto width = number_in(modifier.substr(3), 1, 4096);
    if (!width) {
      throw UsageError(flag + " " + whole + ": pe= wants a number of cores from 1 to 4096");
    }
    options.binding.width = static_cast<std::uint32_t>(*width);
    if (options.binding.to == BindTo::kShare) options.binding.to = BindTo::kCore;
  } else if (modifier == "oversubscribe") {
    options.oversubscribe = true;
  } else if (modifier == "overload-allowed") {
    options.binding.overload = true;
  } else if (modifier != "nooversubscribe" && modifier != "if-supported") {
    throw UsageError(flag + " " + whole + ": '" + modifier +
                     "' is not known here; pe=N, oversubscribe and overload-allowed are");
  }
}

}  // namespace

int parse_count(const std::string& flag, const std::string& text) {
  return number_or_refuse(flag, text, 1);
}

int parse_limit(const std::string& flag, const std::string& text) {
  return number_or_refuse(flag, text, 0);
}

std::uint32_t parse_shards(const std::string& flag, const std::string& text) {
  constexpr int kMostShards = 65536;
  if (const auto shards = number_in(text, 1, kMostShards))
    return static_cast<std::uint32_t>(*shards);
  throw UsageError(flag + " must be a number from 1 to " + std::to_string(kMostShards) + ", not '" +
                   text + "'");
}

std::string parse_text(const std::string& flag, const std::string& text) {
  if (text.empty()) throw UsageError(flag + " has an empty value");
  return text;
}

std::optional<int> parse_per_node(const std::string& flag, const std::string& text, int gpus) {
  if (text == "cpu" || (text == "auto" && gpus == 0)) return std::nullopt;
  if (text != "auto" && text != "gpu") return parse_count(flag, text);
  if (gpus > 0) return gpus;
  throw UsageError(flag +
                   " gpu counts the GPUs of this machine, which has none; say how many the " +
                   "hosts have, as in --per-node 8");
}

int gpus_here(const std::string& devices) {
  int gpus = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.rfind(kPrefix, 0) == 0 && number_in(name.substr(kPrefix.size()), 0, 1023)) ++gpus;
  }
  return gpus;
}

std::optional<std::uint32_t> parse_tree(const std::string& flag, const std::string& text) {
  constexpr int kMostWide = 1024;
  if (text == "auto") return std::nullopt;
  if (text == "no" || text == "none" || text == "off") return 0;
  if (const auto width = number_in(text, 2, kMostWide)) return static_cast<std::uint32_t>(*width);
  throw UsageError(flag + " must be auto, no or a number from 2 to " + std::to_string(kMostWide) +
                   ", not '" + text + "'");
}

std::chrono::milliseconds parse_duration(const std::string& flag, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stop, end);
  double seconds = -1;
  if (unit == "ms") seconds = value / 1000;
  if (unit.empty() || unit == "s") seconds = value;
  if (unit == "m") seconds = value * 60;
  if (unit == "h") seconds = value * 3600;
  if (unit == "d") seconds = value * 24 * 3600;
  constexpr double kYear = 365.0 * 24 * 3600;
  if (text.empty() || error != std::errc() || !std::isfinite(value) || seconds < 0 ||
      seconds > kYear) {
    throw UsageError(flag +
                     " must be a time in seconds such as 30, 1.5, 500ms, 10m, 2h or 7d, and a " +
                     "year at most, not '" + text + "'");
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

ExportedVariable parse_variable(const std::string& flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  ExportedVariable variable{text.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) variable.value = text.substr(equals + 1);
  const auto is_name_character = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (variable.name.empty() ||
      !std::all_of(variable.name.begin(), variable.name.end(), is_name_character)) {
    throw UsageError(flag + " wants NAME or NAME=value, not '" + text + "'");
  }
  return variable;
}

ExportedVariable parse_mount(const std::string& flag, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw UsageError(flag + " '" + text + "': NAME=DIR is needed");
  }
  return {text.substr(0, equals), parse_directory(flag, text.substr(equals + 1))};
}

InputTarget parse_input_target(const std::string& flag, const std::string& text) {
  if (text == "all") return {InputTarget::Kind::kAll, 0};
  if (text == "none") return {InputTarget::Kind::kNone, 0};
  const auto rank = number_in(text, 0, kMaxRanks - 1);
  if (!rank) throw UsageError(flag + " must be a rank, all or none, not '" + text + "'");
  return {InputTarget::Kind::kRank, *rank};
}

void apply_bind_to(const std::string& flag, const std::string& text, Options& options) {
  const std::vector<std::string> parts = split(lower_case(text), ':');
  const auto to = bind_to_named(parts.front());
  if (!to) {
    throw UsageError(flag + " must be core, hwthread, l3cache, numa, socket or none, not '" + text +
                     "'; without it the cores of a node are shared out evenly");
  }
  options.binding.to = *to;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    // Hydra's "core:2" is two cores for each rank.
    const auto width = number_in(parts[i], 1, 4096);
    if (width && (*to == BindTo::kCore || *to == BindTo::kHwthread)) {
      options.binding.width = static_cast<std::uint32_t>(*width);
    } else {
      apply_modifier(flag, text, parts[i], options);
    }
  }
}

void apply_map_by(const std::string& flag, const std::string& text, Options& options,
                  Application& application) {
  if (text.empty()) throw UsageError(flag + " has an empty value");
  std::vector<std::string> parts = split(lower_case(text), ':');
  std::size_t next = 1;
  options.map_by = MapBy::kSlot;
  if (parts.front() == "ppr") {
    const auto count = parts.size() > 2 ? number_in(parts[1], 1, kMaxRanks) : std::nullopt;
    if (!count || parts[2] != "node") {
      throw UsageError(flag + " " + text +
                       ": only ppr:N:node can be placed before the hosts are known; for a number "
                       "per socket say ppr:N:node with N for the whole node and --bind-to socket");
    }
    application.per_node = *count;
    next = 3;
  } else if (parts.front() == "node") {
    options.map_by = MapBy::kNode;
  } else if (const auto part = bind_to_named(parts.front()); part && is_part_of_node(*part)) {
    options.binding.scatter = true;
    if (options.binding.to == BindTo::kShare) options.binding.to = *part;
  } else if (!parts.front().empty() && parts.front() != "slot" && parts.front() != "core" &&
             parts.front() != "hwthread") {
    throw UsageError(flag + " must be slot, node, socket, numa, l3cache or ppr:N:node, not '" +
                     text + "'");
  }
  for (; next < parts.size(); ++next) apply_modifier(flag, text, parts[next], options);
}

MpiMode parse_mpi(const std::string& flag, const std::string& text) {
  if (text == "auto") return MpiMode::kAuto;
  if (text == "pmix") return MpiMode::kPmix;
  if (text == "pmi1") return MpiMode::kPmi1;
  if (text == "none") return MpiMode::kNone;
  throw UsageError(flag + " is auto, pmix (Open MPI), pmi1 (MPICH) or none, not '" + text + "'");
}

MapBy parse_rank_by(const std::string& flag, const std::string& text) {
  const std::string name = lower_case(text);
  if (name == "node") return MapBy::kNode;
  if (name == "slot" || name == "core" || name == "hwthread") return MapBy::kSlot;
  throw UsageError(flag + " must be slot or node, not '" + text + "'");
}

std::string parse_directory(const std::string& flag, const std::string& text) {
  return std::filesystem::absolute(parse_text(flag, text)).lexically_normal().string();
}

std::vector<std::string> split_list(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts = split(text, ',');
  if (std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); })) {
    throw UsageError(flag + " wants names with commas between them, not '" + text + "'");
  }
  return parts;
}

}  // namespace chainmail::launch
