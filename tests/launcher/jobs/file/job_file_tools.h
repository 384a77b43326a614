// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// For tests of job files: folders to mount, settings, and what is said of a wrong file.
// Thread-safe.

#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "launcher/jobs/file/job_file.h"

namespace chainmail::launch::testing_jobs {

/// An empty folder that goes with its scope.
class ScratchFolder {
 public:
  ScratchFolder() : path_((std::filesystem::temp_directory_path() / "chainmail-job.XXXXXX")) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string folder(const std::string& name) const {
    std::filesystem::create_directories(path_ + "/" + name);
    return path_ + "/" + name;
  }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline JobFileSettings some_settings() {
  JobFileSettings settings;
  settings.environment = {{"HOME", "/home/u"}, {"TOKEN_OF_LAUNCHER", "t0ken-of-launcher"}};
  return settings;
}

/// A job of the modern form with these members besides the required ones.
inline std::string modern_job(const std::string& members = "") {
  return R"({"chainmail": 1, "program": ["./train"])" + (members.empty() ? "" : ", " + members) +
         "}";
}

/// A job of Batch AI with these members of "properties" besides the required ones.
inline std::string batch_ai_job(const std::string& members = "") {
  return R"({"properties": {"nodeCount": 2, "chainerSettings": {"pythonScriptFilePath": "/t.py"}, )"
         R"("stdOutErrPathPrefix": "/logs")" +
         (members.empty() ? "" : ", " + members) + "}}";
}

inline JobSpec parsed(const std::string& text, const JobFileSettings& settings = some_settings()) {
  return parse_job_file(text, "/work/jobs/job.json", settings);
}

/// What is said of a wrong file; empty: nothing is wrong with it.
inline std::string refusal_of_job(const std::string& text,
                                  const JobFileSettings& settings = some_settings()) {
  try {
    (void)parse_job_file(text, "job.json", settings);
  } catch (const JobFileError& error) {
    return error.what();
  }
  return "";
}

/// normalised_json() of what two files that say the same share.
inline std::string meaning_of(JobSpec spec) {
  spec.file.clear();
  spec.sha256.clear();
  spec.is_batch_ai = false;
  spec.warnings.clear();
  return normalised_json(spec);
}

}  // namespace chainmail::launch::testing_jobs
