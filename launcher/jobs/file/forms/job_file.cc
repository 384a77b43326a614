// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/job_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string_view>

#include "launcher/files/sha256.h"
#include "launcher/files/text_file.h"
#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/forms/batch_ai_reader.h"
#include "launcher/jobs/file/forms/modern_reader.h"
#include "launcher/jobs/file/text/object_reader.h"
#include "launcher/jobs/file/values/set_options.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kMostJobFileBytes = std::size_t{1} << 20;

std::string absolute_path(const std::string& path) {
  return normal_path(path.starts_with('/') ? path : current_directory() + "/" + path);
}

std::string folder_of_path(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// The one that says so itself; a key of the other form is an unknown key there.
bool says_batch_ai(const JsonNode& root) {
  const JsonNode* schema = root.find("$schema");
  return root.find("properties") != nullptr ||
         (schema != nullptr && schema->text.find("BatchAI") != std::string::npos);
}

enum class JobForm { kModern, kBatchAi, kUnknown };

JobForm form_of(const JsonNode& root, Mistakes& mistakes) {
  if (!check_kind(root, JsonNode::Kind::kObject, mistakes)) return JobForm::kUnknown;
  const JsonNode* version = root.find("chainmail");
  if (version != nullptr && says_batch_ai(root)) {
    mistakes.add(*version,
                 "a file has one form: 'chainmail' stands for Chainmail's, 'properties' and a "
                 "'$schema' of BatchAI for Azure Batch AI's");
    return JobForm::kUnknown;
  }
  if (version != nullptr) return JobForm::kModern;
  if (is_batch_ai_form(root)) return JobForm::kBatchAi;
  std::string message =
      "this is no job file: one has \"chainmail\": 1, or \"properties\" as "
      "Azure Batch AI's have";
  const std::vector<std::string> keys = {"chainmail", "properties"};
  for (const JsonMember& member : root.members) {
    const std::string meant = did_you_mean(member.key, keys);
    if (!meant.empty()) message += "; there is " + in_quotes(member.key) + meant;
  }
  mistakes.add(root, message);
  return JobForm::kUnknown;
}

JobSpec understood(const std::string& text, const JobReading& reading) {
  JsonText json = parse_json_text(text);
  for (const JsonProblem& problem : json.problems) reading.mistakes.add(problem);
  if (!reading.mistakes.empty()) throw JobFileError(reading.mistakes.text());
  const JobForm form = form_of(json.root, reading.mistakes);
  if (form == JobForm::kUnknown) throw JobFileError(reading.mistakes.text());
  const bool is_batch_ai = form == JobForm::kBatchAi;
  if (is_batch_ai) json.root = modern_form_of(reading, JsonNode(json.root));
  apply_sets(json.root, reading.settings.sets, reading.mistakes);
  JobSpec spec = read_modern_form(reading, json.root);
  if (!reading.mistakes.empty()) throw JobFileError(reading.mistakes.text());
  spec.is_batch_ai = is_batch_ai;
  spec.warnings = reading.mistakes.warnings();
  return spec;
}

JobSpec parsed_job(const std::string& text, const std::string& path, const std::string& folder,
                   bool others_can_read, const JobFileSettings& settings) {
  Mistakes mistakes(printable(path));
  if (text.size() > kMostJobFileBytes) {
    throw JobFileError(mistakes.file() + ": a job file has 1 MiB at most");
  }
  JobSpec spec = understood(text, {settings, folder, others_can_read, mistakes});
  spec.file = absolute_path(path);
  spec.sha256 = sha256_of(text);
  return spec;
}

}  // namespace

JobSpec read_job_file(const std::string& path, const JobFileSettings& settings) {
  const std::string text = read_host_text(path, "the job file", Pipes::kWaitFor, kMostJobFileBytes);
  struct stat status {};
  const bool is_file = stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  const bool others_can_read = is_file && (status.st_mode & (S_IRGRP | S_IROTH)) != 0;
  // What a pipe says is about the folder that the user is in.
  const std::string folder = is_file ? folder_of_path(absolute_path(path)) : current_directory();
  return parsed_job(text, path, folder, others_can_read, settings);
}

JobSpec parse_job_file(const std::string& text, const std::string& path,
                       const JobFileSettings& settings) {
  return parsed_job(text, path, folder_of_path(absolute_path(path)), false, settings);
}

}  // namespace chainmail::launch
