// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The systems that export_job() writes for. Pure functions; all throw UsageError for what a job has
// and the system cannot have.

#pragma once

#include <string>

#include "launcher/jobs/file/job_spec.h"

namespace chainmail::launch {

/// A script for sbatch.
[[nodiscard]] std::string slurm_script(const JobSpec& spec);

/// Kubeflow's MPIJob (v2beta1), whose launcher's pod runs the launcher, and whose workers' run
/// sshd.
[[nodiscard]] std::string mpi_job_manifest(const JobSpec& spec);
/// Kubeflow's TrainJob (v1alpha1) for a runtime called "chainmail", which has mlPolicy.mpi.
[[nodiscard]] std::string train_job_manifest(const JobSpec& spec);
/// A JobSet (v1alpha2) with one pod per rank and no launcher.
[[nodiscard]] std::string job_set_manifest(const JobSpec& spec);

/// A text of JSON as YAML, which has objects and lists on lines of their own.
[[nodiscard]] std::string yaml_of_json(const std::string& json);

}  // namespace chainmail::launch
