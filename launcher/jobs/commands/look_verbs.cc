// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher ps` and `launcher show`.

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/jobs/commands/shown_text.h"
#include "launcher/jobs/commands/verb_call.h"

namespace chainmail::launch {
namespace {

using JobJson = nlohmann::ordered_json;

// As in its file, but for what a reader finds out.
JobJson json_of_job(const FoundJob& job) {
  JobJson json = JobJson::parse(json_of(job.record));
  json["folder"] = job.folder;
  return json;
}

std::string text_of_json(const JobJson& json) {
  return json.dump(2, ' ', true, JobJson::error_handler_t::replace) + "\n";
}

std::string table_of(const std::vector<FoundJob>& jobs) {
  std::vector<TableRow> rows = {
      {"ID", "NAME", "STATE", "RANKS", "HOSTS", "ATTEMPT", "AGE", "REASON"}};
  const std::int64_t now = utc_now_ms();
  for (const FoundJob& job : jobs) {
    const JobRecord& record = job.record;
    rows.push_back({record.id, record.name, std::string(to_string(record.phase)),
                    std::to_string(record.ranks), std::to_string(record.hosts.size()),
                    std::to_string(record.attempt), age_text(record.created_ms, now),
                    record.reason});
  }
  return table_text(rows, terminal_columns());
}

void add_line(std::vector<TableRow>& rows, const std::string& name, const std::string& value) {
  if (!value.empty()) rows.push_back({"  " + name, value});
}

void add_time(std::vector<TableRow>& rows, const std::string& name, std::int64_t ms,
              std::int64_t now) {
  if (ms > 0) add_line(rows, name, time_text(ms) + " UTC, " + age_text(ms, now) + " ago");
}

void add_folders(std::vector<TableRow>& rows, const std::string& kind,
                 const std::vector<JobRecord::Output>& folders) {
  for (const JobRecord::Output& folder : folders) {
    add_line(rows, kind + " " + folder.id, folder.path);
  }
}

std::string text_of_job(const FoundJob& job) {
  const JobRecord& record = job.record;
  const std::int64_t now = utc_now_ms();
  std::vector<TableRow> rows;
  add_line(rows, "name", record.name);
  add_line(rows, "uuid", record.uuid);
  add_line(rows, "state", std::string(to_string(record.phase)));
  add_line(rows, "reason", record.reason);
  if (record.exit_code) add_line(rows, "exit code", std::to_string(*record.exit_code));
  add_line(rows, "attempt", std::to_string(record.attempt));
  add_line(rows, "losses", std::to_string(record.losses));
  add_line(rows, "failures", std::to_string(record.failures));
  add_time(rows, "created", record.created_ms, now);
  add_time(rows, "started", record.started_ms, now);
  add_time(rows, "ended", record.ended_ms, now);
  add_line(rows, "ranks", std::to_string(record.ranks));
  for (const JobRecord::Host& host : record.hosts) {
    add_line(rows, "host",
             host.name + ", " + std::to_string(host.slots) +
                 (host.slots == 1 ? " slot, " : " slots, ") + host.state);
  }
  add_line(rows, "image", record.image);
  if (record.launcher.pid != 0) {
    add_line(rows, "launcher",
             "process " + std::to_string(record.launcher.pid) + " on " + record.launcher.host);
  }
  add_line(rows, "folder", job.folder);
  add_line(rows, "stdouterr", record.stdouterr);
  add_folders(rows, "input", record.inputs);
  add_folders(rows, "output", record.outputs);
  for (const std::string& warning : record.warnings) add_line(rows, "warning", warning);
  return record.id + "\n" + table_text(rows);
}

}  // namespace

int run_ps(const VerbCall& call) {
  std::vector<std::string> unreadable;
  const bool has_all = call.words.has("-a");
  const std::vector<FoundJob> jobs = list_jobs(call.root, has_all, unreadable);
  std::string text;
  if (call.words.has("--json")) {
    JobJson list = JobJson::array();
    for (const FoundJob& job : jobs) list.push_back(json_of_job(job));
    text = text_of_json(list);
  } else if (call.words.has("-q")) {
    for (const FoundJob& job : jobs) text += job.record.id + "\n";
  } else if (jobs.empty()) {
    say(has_all ? "you have no jobs"
                : "none of your jobs runs; 'launcher ps -a' shows those that have ended as well");
  } else {
    text = table_of(jobs);
  }
  for (const std::string& line : unreadable) {
    say(line + "; 'launcher rm " + line.substr(0, line.find(':')) + "' removes it");
  }
  print_text(text);
  return 0;
}

int run_show(const VerbCall& call) {
  const FoundJob job = call.job();
  print_text(call.words.has("--json") ? text_of_json(json_of_job(job)) : text_of_job(job));
  return 0;
}

}  // namespace chainmail::launch
