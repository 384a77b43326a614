// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <cstdio>

#include "launcher/job/options.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/export/export_targets.h"
#include "launcher/jobs/file/export/shell_job.h"

namespace chainmail::launch {
namespace {

std::string sbatch_line(const std::string& option) { return "#SBATCH --" + option + "\n"; }

// "D-HH:MM:SS", rounded up.
std::string slurm_time(std::chrono::milliseconds time) {
  const std::int64_t seconds = (time.count() + 999) / 1000;
  char text[64];
  std::snprintf(text, sizeof text, "%lld-%02lld:%02lld:%02lld",
                static_cast<long long>(seconds / 86400),
                static_cast<long long>(seconds / 3600 % 24),
                static_cast<long long>(seconds / 60 % 60), static_cast<long long>(seconds % 60));
  return text;
}

std::string not_exported(const JobSpec& spec) {
  std::vector<std::string> keys;
  if (!spec.hosts.from.empty()) keys.emplace_back("hosts.from");
  if (!spec.hosts.resize.empty()) keys.emplace_back("hosts.resize");
  if (!spec.retry.exit_codes.empty()) keys.emplace_back("retry.exit_codes");
  if (keys.empty()) return "";
  return "# Slurm's own, and not from the job file: " + joined(keys, ", ") + "\n";
}

}  // namespace

std::string slurm_script(const JobSpec& spec) {
  const ShellJobTarget target{"slurm", "$SLURM_JOB_ID", "$NODE_RANK", true, false};
  check_export(spec, target);
  if (!spec.container.image.empty()) {
    throw UsageError(
        "containers under Slurm differ from site to site: start this job by launcher "
        "--job inside of an allocation, or take 'container' out of the job file");
  }
  const JobSize size = size_of(spec);
  // A name has letters, digits, '-', '_' and '.' only.
  std::string script = "#!/bin/sh\n" + sbatch_line("job-name=" + spec.name) +
                       sbatch_line("nodes=" + std::to_string(size.hosts)) +
                       sbatch_line("ntasks=" + std::to_string(size.ranks)) +
                       sbatch_line("ntasks-per-node=" + std::to_string(size.per_host));
  if (spec.limits.time) script += sbatch_line("time=" + slurm_time(*spec.limits.time));
  if (spec.limits.time && spec.limits.grace) {
    const auto grace = std::max<std::int64_t>(1, spec.limits.grace->count() / 1000);
    script += sbatch_line("signal=B:TERM@" + std::to_string(grace));
  }
  script += spec.retry.losses > 0 ? sbatch_line("requeue") + sbatch_line("open-mode=append")
                                  : sbatch_line("no-requeue");
  const std::vector<std::string> outside = variables_from_outside(spec);
  if (!outside.empty()) {
    script +=
        "# Submit it with these in the environment, and not by --export=NAME=VALUE, which "
        "others can read:\n#   " +
        joined(outside, " ") + "\n";
  }
  script += not_exported(spec);
  return script + shell_job(spec, target);
}

}  // namespace chainmail::launch
