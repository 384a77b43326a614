// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/member/description.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "plugin/job/launcher/launcher_client.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kMostLines = 3;
constexpr std::size_t kMostBytesTold = std::size_t{1} << 18;  // of a message's MiB
constexpr char kKey[] = "elastic/description";

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Those of `own` that `other` has not.
std::string rest_of(const std::string& own, const std::string& other) {
  std::vector<std::string> known = lines_of(other);
  std::ranges::sort(known);
  std::string text;
  std::size_t count = 0;
  for (const std::string& line : lines_of(own)) {
    if (std::ranges::binary_search(known, line)) continue;
    if (++count <= kMostLines) text += (text.empty() ? "" : ", ") + line;
  }
  if (count > kMostLines) text += " and " + std::to_string(count - kMostLines) + " more";
  return count == 0 ? "nothing else" : text;
}

}  // namespace

std::string told_part(const std::string& description, std::size_t most_bytes) {
  if (description.size() <= most_bytes) return description;
  const std::size_t end = description.rfind('\n', most_bytes) + 1;
  const std::string rest = description.substr(end);
  std::ostringstream text;
  text << description.substr(0, end) << lines_of(rest).size()
       << " more parts and tensors, not listed, whose digest is " << std::hex << hash64(rest)
       << '\n';
  return text.str();
}

std::string difference_of(const std::string& here, const std::string& in_the_job) {
  if (here == in_the_job) return {};
  const std::string ours = rest_of(here, in_the_job);
  const std::string theirs = rest_of(in_the_job, here);
  if (ours == theirs) return "here the parts of the state are added in another order";
  return "here: " + ours + "; in the job: " + theirs;
}

std::uint64_t compare_description(LauncherClient& launcher, const std::string& own) {
  try {
    const std::string told = told_part(own, kMostBytesTold);
    const std::string difference = difference_of(told, launcher.compare_set(kKey, "", told));
    if (!difference.empty()) {
      log_line(LogLevel::kError,
               "this rank is not like the first of its job, and one of the two is refused: " +
                   difference);
    }
  } catch (const std::exception& error) {
    log_line(LogLevel::kInfo,
             "what this rank has is not compared with its job's: " + std::string(error.what()));
  }
  return hash64(own);
}

}  // namespace chainmail::internal
