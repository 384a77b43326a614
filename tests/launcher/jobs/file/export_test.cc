// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs as scripts and manifests for other systems.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/jobs/file/export/export_targets.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTargetNames[] = {"slurm", "mpijob", "trainjob", "jobset"};

// With `container` for the targets that run in pods.
JobSpec exported_spec(bool has_container, const std::string& more = "") {
  return parsed(
      R"({"chainmail": 1, "name": "My.Job", "ranks": 4, "hosts": {"count": 2},
          "program": ["./train", "--id=$AZ_BATCHAI_TASK_INDEX", "it's", "${output.MODEL}", "$$5"],
          "environment": {"MODE": "a \"b\" $$c $HOME", "HOME": null},
          "secrets": {"KEY": "hunter2-literal", "TOKEN_OF_LAUNCHER": null},
          "inputs": {"D": "/data"}, "outputs": {"MODEL": {"path": "/shared/o", "suffix": "m x"}},
          "logs": {"path": "/shared/logs"}, "prepare": {"command": "echo \"$KEY\"", "timeout": "5m"},
          "limits": {"time": "26h", "grace": "45s"}, "retry": {"failures": 2, "losses": 3})" +
      std::string(has_container ? R"(, "container": {"engine": "docker", "image": "img:1",
          "mounts": ["/scratch:/scratch:ro"], "gpus": "all", "shm_size": "8g"})"
                                : "") +
      more + "}");
}

TEST(Export, ToSlurm) {
  const std::string script = export_job(exported_spec(false), "slurm");
  EXPECT_THAT(script, StartsWith("#!/bin/sh\n#SBATCH --job-name=My.Job\n#SBATCH --nodes=2\n"
                                 "#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=2\n"
                                 "#SBATCH --time=1-02:00:00\n#SBATCH --signal=B:TERM@45\n"
                                 "#SBATCH --requeue\n"));
  EXPECT_THAT(script, HasSubstr("segment=\"jobs/My.Job/$SLURM_JOB_ID\"\n"));
  EXPECT_THAT(script, HasSubstr("export AZ_BATCHAI_OUTPUT_MODEL=/shared/o\"/$segment\"/'m x'\n"));
  EXPECT_THAT(script, HasSubstr("export MODE=\"a \\\"b\\\" \\$c $HOME\"\n"));
  EXPECT_THAT(script, HasSubstr(": \"${KEY?has no value}\"\n"));
  EXPECT_THAT(script, HasSubstr(" --per-node 1 --timeout 5m -- /bin/sh -c "));
  EXPECT_THAT(script, HasSubstr("exec launcher -x AZ_BATCHAI_JOB_NAME"));
  EXPECT_THAT(script, HasSubstr(" -n 4 --per-node 2 --grace 45s --max-restarts 2 -- /bin/sh -c "));
  EXPECT_THAT(
      export_job(parsed(modern_job(R"("ranks": 3, "per_node": 2)")), "slurm"),
      AllOf(HasSubstr("--nodes=2\n"), HasSubstr(" -n 3 --per-node 2 -- /work/jobs/train\n")));
}

// What the script makes of a job is what sh makes of it: a stand-in shows it.
TEST(Export, TheScriptRunsWhatTheFileSays) {
  const ScratchFolder scratch;
  const std::string launcher = scratch.file(
      "launcher",
      "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nNODE_RANK=7 exec \"$@\"\n");
  const std::string train =
      scratch.file("train", "#!/bin/sh\nprintf '[%s]' \"$MODE\" \"$PWD\" \"$@\"\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  std::filesystem::permissions(train, std::filesystem::perms::owner_all);
  JobFileSettings settings = some_settings();
  settings.mounts = {{"in", scratch.folder("mounted")}};
  const JobSpec spec = parse_job_file(
      R"({"chainmail": 1, "ranks": 1, "directory": ".", "environment": {"MODE": "a 'b' $$c"},
          "program": ["./train", "--id=$AZ_BATCHAI_TASK_INDEX", "it's \"$AZ_BATCHAI_JOB_NAME\"", "$$5",
                      "${output.M}", "$AZ_BATCHAI_JOB_MOUNT_ROOT/in", ""],
          "outputs": {"M": {"path": "o $$", "suffix": "s"}}, "logs": {"path": "l"}})",
      scratch.path() + "/j.json", settings);
  const std::string script = scratch.file("script", export_job(spec, "slurm"));
  const std::string command = "TMPDIR=" + scratch.folder("tmp") + " PATH=" + scratch.path() +
                              ":$PATH SLURM_JOB_ID=12 sh " + script + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char buffer[4096];
  const std::string out(buffer, fread(buffer, 1, sizeof buffer, pipe));
  EXPECT_EQ(pclose(pipe), 0) << out;
  const std::string& root = scratch.path();
  EXPECT_EQ(out, "[a 'b' $c][" + root + "][--id=7][it's \"j\"][$5][" + root + "/o $/jobs/j/12/s][" +
                     root + "/l/jobs/j/12/mounts/in][]");
  EXPECT_TRUE(std::filesystem::is_directory(root + "/o $/jobs/j/12/s"));
  EXPECT_EQ(std::filesystem::read_symlink(root + "/l/jobs/j/12/mounts/in"), root + "/mounted");
}

TEST(Export, ToKubernetes) {
  const JobSpec spec = exported_spec(true);
  const std::string mpi = export_job(spec, "mpijob");
  EXPECT_THAT(mpi, AllOf(HasSubstr("apiVersion: \"kubeflow.org/v2beta1\"\nkind: \"MPIJob\"\n"),
                         HasSubstr("  name: \"my-job\"\n"), HasSubstr("  slotsPerWorker: 2\n"),
                         HasSubstr("activeDeadlineSeconds: 93600\n"),
                         HasSubstr("    Worker:\n      replicas: 2\n"),
                         HasSubstr("nvidia.com/gpu: 2\n"), HasSubstr("sizeLimit: \"8Gi\"\n")));
  EXPECT_THAT(mpi, HasSubstr("- name: \"KEY\"\n"
                             "                  valueFrom:\n"
                             "                    secretKeyRef:\n"
                             "                      name: \"my-job-secrets\"\n"
                             "                      key: \"KEY\"\n"));
  EXPECT_THAT(export_job(spec, "trainjob"),
              AllOf(HasSubstr("kind: \"TrainJob\"\n"), HasSubstr("    numProcPerNode: 2\n"),
                    HasSubstr("# Its pods must have these folders: /scratch /work/jobs")));
  EXPECT_THAT(export_job(spec, "jobset"),
              AllOf(HasSubstr("kind: \"JobSet\"\n"), HasSubstr("completions: 4\n"),
                    HasSubstr("action: \"RestartJobSetAndIgnoreMaxRestarts\"\n"),
                    HasSubstr("value: \"my-job-ranks-0-0.my-job\"\n"),
                    HasSubstr("initContainers:\n"), HasSubstr("maxRestarts: 2\n")));
}

TEST(Export, NoManifestHasASecret) {
  for (const char* target : kTargetNames) {
    const std::string text = export_job(exported_spec(std::string(target) != "slurm"), target);
    EXPECT_THAT(text, Not(HasSubstr("hunter2"))) << target;
    EXPECT_THAT(text, Not(HasSubstr("t0ken"))) << target;
    EXPECT_THAT(text, HasSubstr("KEY")) << target;
  }
}

std::string export_refusal(const JobSpec& spec, const std::string& target) {
  try {
    (void)export_job(spec, target);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Export, WhatATargetCannotHaveIsRefused) {
  EXPECT_THAT(export_refusal(parsed(modern_job()), "slrum"), HasSubstr("did you mean 'slurm'?"));
  EXPECT_THAT(export_refusal(parsed(modern_job()), "pbs"), HasSubstr("slurm, mpijob, trainjob"));
  EXPECT_THAT(export_refusal(parsed(modern_job()), "slurm"), HasSubstr("'hosts.count' or 'ranks'"));
  EXPECT_THAT(export_refusal(exported_spec(true), "slurm"), HasSubstr("take 'container' out"));
  for (const char* target : {"mpijob", "trainjob", "jobset"}) {
    EXPECT_THAT(export_refusal(exported_spec(false), target), HasSubstr("add 'container.image'"));
  }
  JobFileSettings settings = some_settings();
  settings.is_complete = false;
  for (const char* target : kTargetNames) {
    const bool has_container = std::string(target) != "slurm";
    const auto said_of = [&](JobSpec spec) {
      if (has_container) spec.container = {"docker", "i", {}, "", ""};
      return export_refusal(spec, target);
    };
    EXPECT_THAT(said_of(parsed(modern_job(R"("ranks": 2, "elastic": {"min": 1, "max": 2})"))),
                HasSubstr("fixed number of hosts"));
    EXPECT_THAT(said_of(parsed(modern_job(R"("ranks": 2, "mounts": {"a": null})"), settings)),
                HasSubstr("add --mount a=DIR"));
    EXPECT_THAT(
        said_of(parsed(modern_job(R"("ranks": 2, "environment": {"A": "$AZ_BATCHAI_NUM_GPUS"})"))),
        HasSubstr("no $AZ_BATCHAI_NUM_GPUS"));
  }
}

TEST(Export, Yaml) {
  EXPECT_EQ(yaml_of_json(R"({"a": 1, "b-c": "x: \"y\"\t", "e": [], "f": {}, "g": null,
                             "l": [1, "two", {"k": true, "m": {"n": [false]}}, {}, [3]],
                             "s": "one\n\n  two\n", "t": "\nx", "u": "a\nb"})"),
            "a: 1\n\"b-c\": \"x: \\\"y\\\"\\t\"\ne: []\nf: {}\ng: null\nl:\n  - 1\n  - \"two\"\n"
            "  - k: true\n    m:\n      n:\n        - false\n  - {}\n  -\n    - 3\n"
            "s: |\n  one\n\n    two\nt: \"\\nx\"\nu: \"a\\nb\"\n");
}

}  // namespace
}  // namespace chainmail::launch
