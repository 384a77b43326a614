// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include <chainmail/report.h>

#include "plugin/report/files.h"

namespace chainmail {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ReportEntry& entry) {
  Json json;
  for (const auto& [name, value] : entry.values) json[name] = value;
  json["epoch"] = entry.epoch;
  json["iteration"] = entry.iteration;
  json["elapsed_time"] = entry.elapsed_time;
  return json;
}

// What an earlier run left, up to the epoch it is resumed from; a damaged file counts as none.
Json earlier_entries(const std::string& path, std::int64_t resume_epoch) {
  Json kept = Json::array();
  std::ifstream file(path);
  const Json old = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (old.is_array()) {
    for (const Json& entry : old) {
      if (entry.is_object() && entry.contains("epoch") && entry["epoch"].is_number_integer() &&
          entry["epoch"].get<std::int64_t>() <= resume_epoch) {
        kept.push_back(entry);
      }
    }
  }
  return kept;
}

}  // namespace

struct LogReport::Impl {
  std::string path;
  Json entries = Json::array();
  bool is_resumed = false;  ///< all entries are of an earlier run
};

namespace {

bool is_of(const Json& earlier, const ReportEntry& entry) {
  return earlier["epoch"] == entry.epoch && earlier.value("iteration", Json()) == entry.iteration;
}

}  // namespace

LogReport::LogReport(std::string path, std::int64_t resume_epoch)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  internal::make_folder_of(impl_->path);
  if (resume_epoch > 0) impl_->entries = earlier_entries(impl_->path, resume_epoch);
  impl_->is_resumed = !impl_->entries.empty();
}

LogReport::~LogReport() = default;

void LogReport::report(const ReportEntry& entry) {
  // A job that was interrupted after its last report makes it once more.
  if (std::exchange(impl_->is_resumed, false) && is_of(impl_->entries.back(), entry)) {
    impl_->entries.erase(impl_->entries.size() - 1);
  }
  impl_->entries.push_back(to_json(entry));
  internal::replace_file(impl_->path, impl_->entries.dump(4) + '\n');
}

}  // namespace chainmail
