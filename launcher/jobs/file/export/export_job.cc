// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <array>

#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/export/export_targets.h"
#include "launcher/jobs/file/job_file.h"
#include "launcher/jobs/file/text/mistakes.h"

namespace chainmail::launch {
namespace {

struct ExportTarget {
  const char* name;
  std::string (*write)(const JobSpec& spec);
};
constexpr std::array<ExportTarget, 4> kTargets = {{{"slurm", slurm_script},
                                                   {"mpijob", mpi_job_manifest},
                                                   {"trainjob", train_job_manifest},
                                                   {"jobset", job_set_manifest}}};

}  // namespace

std::string export_job(const JobSpec& spec, const std::string& target) {
  std::vector<std::string> names;
  for (const ExportTarget& known : kTargets) {
    if (target == known.name) return known.write(spec);
    names.emplace_back(known.name);
  }
  const std::string meant = did_you_mean(target, names);
  throw UsageError("jobs are exported to slurm, mpijob, trainjob and jobset, not to " +
                   in_quotes(target) + meant);
}

}  // namespace chainmail::launch
