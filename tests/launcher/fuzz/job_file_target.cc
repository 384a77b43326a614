// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Job files of both forms: any text is refused in words for people, or means the same once it has
// been written in the modern form.

#include <algorithm>

#include "launcher/jobs/file/job_file.h"
#include "launcher/jobs/file/text/durations.h"
#include "launcher/jobs/file/text/shell_words.h"
#include "tests/launcher/fuzz/fuzz_targets.h"

namespace chainmail::launch {
namespace {

// Away from the files of whoever runs this: nothing is looked for, and no folder is there.
constexpr const char* kJobPath = "/none/such/job.json";

JobSpec fuzzed_job(const std::string& text) {
  JobFileSettings settings;
  settings.environment = {{"HOME", "/none"}};
  settings.is_complete = false;
  return parse_job_file(text, kJobPath, settings);
}

std::string meaning_of_fuzzed(JobSpec spec) {
  spec.sha256.clear();
  spec.is_batch_ai = false;
  spec.warnings.clear();
  return normalised_json(spec);
}

bool is_for_people(std::string_view message) {
  return !message.empty() && std::all_of(message.begin(), message.end(), [](char c) {
    return c == '\n' || (c >= ' ' && c < 0x7f);
  });
}

void check_job(const JobSpec& spec) {
  promise(!spec.program.empty() && !spec.name.empty(), "a program and a name");
  for (const std::string& warning : spec.warnings) {
    promise(is_for_people(warning), "warnings without control characters");
  }
  try {
    promise(meaning_of_fuzzed(fuzzed_job(modern_text(spec))) == meaning_of_fuzzed(spec),
            "the modern form says the same");
  } catch (const JobFileError& error) {
    promise(false, error.what());
  }
  for (const char* target : {"slurm", "mpijob", "trainjob", "jobset"}) {
    try {
      promise(!export_job(spec, target).empty(), "a script or manifest");
    } catch (const UsageError& error) {
      promise(is_for_people(error.what()), "a message without control characters");
    }
  }
}

void run_job_file(std::string_view text) {
  (void)duration_in(text);
  (void)batch_ai_duration_in(text);
  (void)split_shell_words(text);
  (void)shell_variables(text);
  try {
    check_job(fuzzed_job(std::string(text)));
  } catch (const JobFileError& error) {
    promise(is_for_people(error.what()), "a message without control characters");
  }
}

}  // namespace

FuzzTarget job_file_fuzz_target() {
  return {
      "job_file",
      run_job_file,
      {R"({"chainmail": 1, "name": "a", "program": ["./p", "$RANK", "${input.D}", "$$"], "ranks": 4,
           "per_node": 2, "hosts": {"from": "h1:2,h2:2", "count": 2, "wait": "5m", "resize": ["./r"],
           "idle": 60}, "directory": "d", "environment": {"A": "$HOME", "B": null},
           "secrets": {"K": null, "L": {"file": "~/k"}, "M": "m"}, "inputs": {"D": "/d"},
           "outputs": {"O": {"path": "o", "suffix": "s"}, "P": "p"}, "mounts": {"m": null}})",
       R"({"chainmail": 1, "program": ["sh", "-c", "x $$AZ_BATCHAI_MOUNT_ROOT/m"], // c
           "prepare": {"command": "ls", "timeout": 5}, "container": {"engine": "podman", "image": "i",
           "mounts": ["/a:/b:ro"], "gpus": "all", "shm_size": "8g"}, "limits": {"time": "7d",
           "stall": 0, "grace": "1.5s"}, "retry": {"failures": 1, "losses": 2, "exit_codes": [3],
           "wait": "10s"}, "elastic": {"min": 1, "max": 2}, "logs": {"path": "l", "tag": true},
           "options": {"bind-to": "core", "encrypt": true, "shards": 2}})",
       R"({"$schema": "x/BatchAI/job.json", "properties": {"nodeCount": 2, "chainerSettings":
           {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/s/t.py", "pythonInterpreterPath": "py",
           "commandLineArgs": "-a 'b c' \"$AZ_BATCHAI_OUTPUT_O\"d \\$x ~/y", "processCount": 3},
           "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/l", "inputDirectories": [{"id": "I",
           "path": "/i"}], "outputDirectories": [{"id": "O", "pathPrefix": "/o", "pathSuffix": "s"}],
           "environmentVariables": [{"name": "A", "value": "$5"}], "secrets": [{"name": "S",
           "value": "v"}], "constraints": {"maxWallClockTime": "P1DT2H"}, "mountVolumes":
           {"azureFileShares": [{"relativeMountPath": "s"}]}, "containerSettings":
           {"imageSourceRegistry": {"image": "i", "serverUrl": "https://r/"}, "shmSize": "1g"}}})",
       R"({"nodeCount": 2, "customMpiSettings": {"commandLine": "echo $A"}, "stdOutErrPathPrefix": "/l",
           "jobPreparation": {"commandLine": "x; y"}})"},
      ""};
}

}  // namespace chainmail::launch
