// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/forms/modern_parts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "launcher/hosts/hostfile.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/text/object_reader.h"

namespace chainmail::launch {
namespace {

constexpr std::array<std::string_view, 3> kEngines = {"podman", "docker", "apptainer"};

// As -H takes it, but a file is looked for beside the job file.
std::string hosts_source(const JobReading& reading, const JsonNode& node, const std::string& text) {
  if (text.empty() || text.find('/') != std::string::npos || text == "~") {
    return path_in(reading, node, text);
  }
  const std::string beside = path_in(reading, node, text);
  std::error_code error;
  if (std::filesystem::is_regular_file(beside, error)) return beside;
  try {
    (void)parse_host_list(text, "hosts");
  } catch (const HostsError& problem) {
    reading.mistakes.add(node,
                         std::string("is no file here, and no list of hosts: ") + problem.what());
  }
  return text;
}

void read_resize(const JobReading& reading, const JsonNode& node, JobSpec::Hosts& hosts) {
  if (!check_kind(node, JsonNode::Kind::kList, reading.mistakes)) return;
  for (const JsonNode& item : node.items) {
    auto word = text_in(item, reading.mistakes);
    if (!word) continue;
    const bool is_program = hosts.resize.empty();
    const bool is_path = word->find('/') != std::string::npos;
    hosts.resize.push_back(is_program && is_path ? path_in(reading, item, *word)
                                                 : *std::move(word));
  }
  if (node.items.empty() || (!hosts.resize.empty() && hosts.resize.front().empty())) {
    reading.mistakes.add(node, "the name of a program is missing");
  }
}

bool is_image(const std::string& image) {
  return !image.empty() && image.front() != '-' &&
         std::all_of(image.begin(), image.end(), [](char c) { return c > ' ' && c != 0x7f; });
}

// "8g" of "8g", "8GB" and the like, which engines take; nothing of another text.
std::optional<std::string> memory_size(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit = text.substr(digits);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  constexpr std::array<std::string_view, 8> kSizeUnits = {"", "b", "k", "kb", "m", "mb", "g", "gb"};
  const bool is_size = digits > 0 && digits < 16 &&
                       std::find(kSizeUnits.begin(), kSizeUnits.end(), unit) != kSizeUnits.end();
  return is_size ? std::optional(text.substr(0, digits) + unit.substr(0, 1)) : std::nullopt;
}

bool is_gpu_list(const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  return text == "all" || std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
           const auto number = whole_number(part);
           return number && *number >= 0 && *number < 1024;
         });
}

// "SOURCE:TARGET", "SOURCE:TARGET:ro"; the source may be beside the job file.
std::optional<std::string> container_mount(const JobReading& reading, const JsonNode& node,
                                           const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  const bool has_mode = parts.size() == 3;
  const bool is_good = (parts.size() == 2 || has_mode) && !parts[0].empty() &&
                       parts[1].starts_with('/') &&
                       (!has_mode || parts[2] == "ro" || parts[2] == "rw");
  if (is_good) {
    return path_in(reading, node, parts[0]) + ":" + parts[1] + (has_mode ? ":" + parts[2] : "");
  }
  reading.mistakes.add(node,
                       "must be FOLDER:FOLDER-INSIDE or FOLDER:FOLDER-INSIDE:ro, where the "
                       "folder inside begins with '/'");
  return std::nullopt;
}

// Where it is inside.
std::filesystem::path target_of(const std::string& mount) {
  const std::string target = split(mount, ':')[1];
  const std::size_t end = target.find_last_not_of('/');
  return std::filesystem::path(target.substr(0, end == std::string::npos ? 1 : end + 1))
      .lexically_normal();
}

// Neither engines nor Kubernetes take these, and each says so in its own words when the job is to
// start.
void check_target(const JobReading& reading, const JsonNode& node, const std::string& mount,
                  const std::vector<std::string>& others) {
  const auto target = target_of(mount);
  if (target == "/") reading.mistakes.add(node, "'/' inside is the image itself");
  const auto is_same = [&](const std::string& other) { return target_of(other) == target; };
  if (std::any_of(others.begin(), others.end(), is_same)) {
    reading.mistakes.add(node, "another folder is mounted at " + target.string() + " already");
  }
}

}  // namespace

void read_hosts(const JobReading& reading, const JsonNode& node, JobSpec::Hosts& hosts) {
  ObjectReader reader(node, reading.mistakes);
  if (const JsonNode* from = reader.find("from")) {
    const auto text = text_in(*from, reading.mistakes);
    if (text) hosts.from = hosts_source(reading, *from, *text);
  }
  reader.number("count", 1, kMostRanks, hosts.count);
  reader.duration("wait", hosts.wait);
  if (const JsonNode* resize = reader.find("resize")) read_resize(reading, *resize, hosts);
  if (const JsonNode* resize = node.find("resize"); resize != nullptr && !hosts.count) {
    reading.mistakes.add(*resize, "needs 'count', the number of hosts that it is called with");
  }
  const JsonNode* idle = reader.find("idle");
  reader.duration("idle", hosts.idle);
  if (idle != nullptr && node.find("resize") == nullptr) {
    reading.mistakes.add(*idle, "nobody gives hosts back without 'resize'");
  }
  reader.refuse_unknown();
}

void read_container(const JobReading& reading, const JsonNode& node,
                    JobSpec::Container& container) {
  Mistakes& mistakes = reading.mistakes;
  ObjectReader reader(node, mistakes);
  const JsonNode* engine = reader.require("engine");
  reader.text("engine", container.engine);
  if (engine != nullptr && engine->kind == JsonNode::Kind::kText &&
      std::find(kEngines.begin(), kEngines.end(), container.engine) == kEngines.end()) {
    mistakes.add(*engine, "must be podman, docker or apptainer");
  }
  const JsonNode* image = reader.require("image");
  reader.text("image", container.image);
  if (image != nullptr && !is_image(container.image)) {
    mistakes.add(*image, "must be the name of an image, without blanks");
  }
  if (const JsonNode* mounts = reader.find("mounts");
      mounts != nullptr && check_kind(*mounts, JsonNode::Kind::kList, mistakes)) {
    for (const JsonNode& item : mounts->items) {
      const auto text = text_in(item, mistakes);
      auto mount = text ? container_mount(reading, item, *text) : std::nullopt;
      if (!mount) continue;
      check_target(reading, item, *mount, container.mounts);
      container.mounts.push_back(*std::move(mount));
    }
  }
  reader.text("gpus", container.gpus);
  const JsonNode* gpus = reader.find("gpus");
  if (gpus != nullptr && !container.gpus.empty() && !is_gpu_list(container.gpus)) {
    mistakes.add(*gpus, "must be \"all\" or their numbers, such as \"0,1\"");
  }
  reader.text("shm_size", container.shm_size);
  const JsonNode* shm_size = reader.find("shm_size");
  if (shm_size != nullptr && !container.shm_size.empty()) {
    const auto size = memory_size(container.shm_size);
    if (!size) mistakes.add(*shm_size, "must be a size such as \"8g\" or \"512m\"");
    container.shm_size = size.value_or("");
  }
  reader.refuse_unknown();
}

void read_limits(const JobReading& reading, const JsonNode& node, JobSpec::Limits& limits) {
  ObjectReader reader(node, reading.mistakes);
  reader.duration("time", limits.time);
  reader.duration("stall", limits.stall);
  reader.duration("grace", limits.grace);
  reader.refuse_unknown();
  // As with --timeout: none.
  for (auto* limit : {&limits.time, &limits.stall}) {
    if (*limit && limit->value().count() == 0) limit->reset();
  }
}

void read_retry(const JobReading& reading, const JsonNode& node, JobSpec::Retry& retry) {
  ObjectReader reader(node, reading.mistakes);
  reader.number("failures", 0, kMostRanks, retry.failures);
  reader.number("losses", 0, kMostRanks, retry.losses);
  if (const JsonNode* codes = reader.find("exit_codes");
      codes != nullptr && check_kind(*codes, JsonNode::Kind::kList, reading.mistakes)) {
    for (const JsonNode& item : codes->items) {
      const auto code = whole_number_in(item, 1, 255, reading.mistakes);
      if (code) retry.exit_codes.push_back(static_cast<int>(*code));
    }
  }
  reader.duration("wait", retry.wait);
  reader.refuse_unknown();
}

void read_elastic(const JobReading& reading, const JsonNode& node, JobSpec::Elastic& elastic) {
  ObjectReader reader(node, reading.mistakes);
  const bool has_both = reader.require("min") != nullptr && reader.require("max") != nullptr;
  reader.number("min", 1, kMostRanks, elastic.min);
  reader.number("max", 1, kMostRanks, elastic.max);
  reader.refuse_unknown();
  if (has_both && elastic.max != 0 && elastic.min > elastic.max) {
    reading.mistakes.add(node, "'min' is more than 'max'");
  }
}

}  // namespace chainmail::launch
