// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/job_record.h"

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using RecordJson = nlohmann::ordered_json;

constexpr int kRecordVersion = 1;

struct NamedPhase {
  JobPhase phase;
  std::string_view name;
};
constexpr NamedPhase kPhases[] = {
    {JobPhase::kQueued, "queued"},     {JobPhase::kPreparing, "preparing"},
    {JobPhase::kRunning, "running"},   {JobPhase::kRetrying, "retrying"},
    {JobPhase::kStopping, "stopping"}, {JobPhase::kSucceeded, "succeeded"},
    {JobPhase::kFailed, "failed"},     {JobPhase::kStopped, "stopped"},
    {JobPhase::kLost, "lost"},
};

[[noreturn]] void refuse_record(const std::string& what) {
  throw SystemError("the state of a job: " + what, EPROTO);
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// One object of the file, whose members may be missing.
class RecordReader {
 public:
  RecordReader(const RecordJson& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) refuse_record(where_ + " is no object");
  }

  void read(const char* key, std::string& value) const {
    const RecordJson* const member = find(key);
    if (member == nullptr) return;
    if (!member->is_string()) refuse_record(where_ + key + " is no text");
    value = member->get<std::string>();
  }
  template <std::integral Number>
  void read(const char* key, Number& value) const {
    const RecordJson* const member = find(key);
    if (member == nullptr) return;
    if (!member->is_number_integer()) refuse_record(where_ + key + " is no whole number");
    const bool fits = member->is_number_unsigned()
                          ? std::in_range<Number>(member->get<std::uint64_t>())
                          : std::in_range<Number>(member->get<std::int64_t>());
    if (!fits) refuse_record(where_ + key + " is out of range");
    value = member->get<Number>();
  }
  /// Calls `use(json, place)` for each entry of a list.
  template <typename Use>
  void each(const char* key, const Use& use) const {
    const RecordJson* const member = find(key);
    if (member == nullptr) return;
    if (!member->is_array()) refuse_record(where_ + key + " is no list");
    std::size_t index = 0;
    for (const RecordJson& entry : *member) {
      use(entry, where_ + key + "[" + std::to_string(index++) + "].");
    }
  }
  /// Null where it is missing, or null.
  [[nodiscard]] const RecordJson* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

 private:
  const RecordJson& json_;
  std::string where_;
};

RecordJson list_of(const std::vector<JobRecord::Output>& folders) {
  RecordJson list = RecordJson::array();
  for (const JobRecord::Output& folder : folders) {
    list.push_back({{"id", folder.id}, {"path", folder.path}});
  }
  return list;
}

std::vector<JobRecord::Output> folders_in(const RecordReader& reader, const char* key) {
  std::vector<JobRecord::Output> folders;
  reader.each(key, [&folders](const RecordJson& json, const std::string& place) {
    JobRecord::Output& folder = folders.emplace_back();
    const RecordReader entry(json, place);
    entry.read("id", folder.id);
    entry.read("path", folder.path);
  });
  return folders;
}

JobRecord::Launcher launcher_in(const RecordReader& reader) {
  JobRecord::Launcher launcher;
  const RecordJson* const json = reader.find("launcher");
  if (json == nullptr) return launcher;
  const RecordReader entry(*json, "launcher.");
  entry.read("host", launcher.host);
  entry.read("boot_id", launcher.boot_id);
  entry.read("pid", launcher.pid);
  entry.read("start_time", launcher.start_time);
  return launcher;
}

std::vector<JobRecord::Host> hosts_in(const RecordReader& reader) {
  std::vector<JobRecord::Host> hosts;
  reader.each("hosts", [&hosts](const RecordJson& json, const std::string& place) {
    JobRecord::Host& host = hosts.emplace_back();
    const RecordReader entry(json, place);
    entry.read("name", host.name);
    entry.read("slots", host.slots);
    entry.read("state", host.state);
  });
  return hosts;
}

JobPhase phase_in(const RecordReader& reader) {
  std::string name;
  reader.read("state", name);
  for (const NamedPhase& known : kPhases) {
    if (known.name == name) return known.phase;
  }
  refuse_record("state is none that this launcher knows");
}

// What is made of a file of another version would be a guess.
void check_version(const RecordReader& reader) {
  int version = 0;
  reader.read("version", version);
  if (version == kRecordVersion) return;
  refuse_record("its version is " + std::to_string(version) + ", this launcher reads " +
                std::to_string(kRecordVersion));
}

void check_identity(const JobRecord& record) {
  if (!is_job_id(record.id)) refuse_record("id is none");
  if (job_name_of(record.id) != record.name) refuse_record("id and name do not go together");
  if (!record.uuid.empty() && !is_uuid(record.uuid)) refuse_record("uuid is none");
}

JobRecord parsed_record(const RecordJson& json) {
  const RecordReader reader(json, "");
  check_version(reader);
  JobRecord record;
  reader.read("id", record.id);
  reader.read("uuid", record.uuid);
  reader.read("name", record.name);
  check_identity(record);
  record.phase = phase_in(reader);
  reader.read("reason", record.reason);
  if (reader.find("exit_code") != nullptr) reader.read("exit_code", record.exit_code.emplace());
  reader.read("attempt", record.attempt);
  reader.read("losses", record.losses);
  reader.read("failures", record.failures);
  reader.read("created_ms", record.created_ms);
  reader.read("started_ms", record.started_ms);
  reader.read("ended_ms", record.ended_ms);
  reader.read("grace_ms", record.grace_ms);
  record.launcher = launcher_in(reader);
  reader.read("ranks", record.ranks);
  record.hosts = hosts_in(reader);
  record.inputs = folders_in(reader, "inputs");
  record.outputs = folders_in(reader, "outputs");
  reader.read("stdouterr", record.stdouterr);
  reader.read("image", record.image);
  reader.read("resize", record.resize);
  reader.each("warnings", [&record](const RecordJson& warning, const std::string&) {
    if (!warning.is_string()) refuse_record("a warning is no text");
    record.warnings.push_back(warning.get<std::string>());
  });
  return record;
}

}  // namespace

std::string_view to_string(JobPhase phase) {
  for (const NamedPhase& known : kPhases) {
    if (known.phase == phase) return known.name;
  }
  return "unknown";
}

bool is_ended(JobPhase phase) noexcept {
  switch (phase) {
    case JobPhase::kSucceeded:
    case JobPhase::kFailed:
    case JobPhase::kStopped:
    case JobPhase::kLost:
      return true;
    case JobPhase::kQueued:
    case JobPhase::kPreparing:
    case JobPhase::kRunning:
    case JobPhase::kRetrying:
    case JobPhase::kStopping:
      break;
  }
  return false;
}

bool is_job_name(std::string_view text) noexcept {
  constexpr std::size_t kMost = 64;
  return !text.empty() && text.size() <= kMost && text.front() != '-' && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

bool is_job_id(std::string_view text) noexcept {
  if (text.size() <= kRandomLetters + 1) return false;
  const std::string_view letters = text.substr(text.size() - kRandomLetters);
  return text[text.size() - kRandomLetters - 1] == '-' && is_job_name(job_name_of(text)) &&
         letters.find_first_not_of(kIdLetters) == std::string_view::npos;
}

std::string_view job_name_of(std::string_view id) noexcept {
  return id.substr(0, id.size() - std::min(id.size(), kRandomLetters + 1));
}

bool is_uuid(std::string_view text) noexcept {
  constexpr std::string_view kPattern = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return text.size() == kPattern.size() &&
         std::equal(text.begin(), text.end(), kPattern.begin(), [](char c, char wanted) {
           if (wanted == '-') return c == '-';
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string json_of(const JobRecord& record) {
  RecordJson json = {
      {"version", kRecordVersion},
      {"id", record.id},
      {"uuid", record.uuid},
      {"name", record.name},
      {"state", to_string(record.phase)},
      {"reason", record.reason},
      {"exit_code", nullptr},
      {"attempt", record.attempt},
      {"losses", record.losses},
      {"failures", record.failures},
      {"created_ms", record.created_ms},
      {"started_ms", record.started_ms},
      {"ended_ms", record.ended_ms},
      {"grace_ms", record.grace_ms},
      {"launcher",
       {{"host", record.launcher.host},
        {"boot_id", record.launcher.boot_id},
        {"pid", record.launcher.pid},
        {"start_time", record.launcher.start_time}}},
      {"ranks", record.ranks},
      {"hosts", RecordJson::array()},
      {"inputs", list_of(record.inputs)},
      {"outputs", list_of(record.outputs)},
      {"stdouterr", record.stdouterr},
      {"image", record.image},
      {"resize", record.resize},
      {"warnings", record.warnings},
  };
  if (record.exit_code) json["exit_code"] = *record.exit_code;
  for (const JobRecord::Host& host : record.hosts) {
    json["hosts"].push_back({{"name", host.name}, {"slots", host.slots}, {"state", host.state}});
  }
  return json.dump(2, ' ', true, RecordJson::error_handler_t::replace) + "\n";
}

JobRecord record_of(std::string_view json) {
  try {
    return parsed_record(RecordJson::parse(json));
  } catch (const RecordJson::exception& error) {
    refuse_record(error.what());
  }
}

}  // namespace chainmail::launch
