// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ranks of a job file's job find: variables with Azure Batch AI's names, and the script that
// makes and checks folders on each host before the job's own preparation runs there. Pure.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/options.h"
#include "launcher/jobs/file/job_spec.h"

namespace chainmail::launch {

/// Where this run of the job has its files: PATH/jobs/NAME/UUID.
[[nodiscard]] std::string run_folder(const std::string& path, const std::string& name,
                                     const std::string& uuid);

struct JobPlaces {
  std::string stdouterr;                 ///< absolute
  std::vector<JobSpec::Folder> inputs;   ///< as hosts look for them: absolute, or a pattern still
  std::vector<JobSpec::Folder> outputs;  ///< the folders themselves
};
[[nodiscard]] JobPlaces places_of(const JobSpec& spec, const std::string& job_folder,
                                  const std::string& uuid);

/// Ranks meet there by torch's own means; set where a job names it, since it needs a free port.
inline constexpr char kPytorchInitMethod[] = "AZ_BATCHAI_PYTORCH_INIT_METHOD";
/// Whether the program, the preparation or a variable of the file has this name in it.
[[nodiscard]] bool mentions(const JobSpec& spec, const std::string& name);

/// Variables that an elastic job has not: what they name is made by an agent that prepares a host,
/// and those of ranks have others.
[[nodiscard]] std::vector<std::string> absent_in_elastic_jobs(const JobSpec& spec);

/// AZ_BATCHAI_..., patterns that the agent expands; and the file's own variables and secrets, as
/// they are. `hosts`: of this attempt.
[[nodiscard]] std::vector<ExportedVariable> job_variables(const JobSpec& spec,
                                                          const JobPlaces& places,
                                                          const std::vector<Host>& hosts,
                                                          bool is_elastic);

/// The words with ${input.ID} and ${output.ID} as the variables' names.
[[nodiscard]] std::vector<std::string> job_program(const JobSpec& spec);

/// For the first host alone: makes what all hosts must see. Empty: nothing.
[[nodiscard]] std::vector<std::string> first_words(const JobSpec& spec, const JobPlaces& places);
/// For each host, wherever it runs: checks inputs and outputs, makes what AZ_BATCHAI_... name below
/// the host's own folder, then, in `directory` (a pattern) if that is there, the job's own command.
/// Of an elastic job, whose agents do not share that folder, without what is made in it.
[[nodiscard]] std::vector<std::string> preparation_words(const JobSpec& spec,
                                                         const JobPlaces& places,
                                                         const std::vector<Host>& hosts,
                                                         const std::string& directory,
                                                         bool is_elastic);

}  // namespace chainmail::launch
