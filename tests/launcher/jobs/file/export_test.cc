// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Jobs as scripts and manifests for other systems.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/command_line/parse.h"
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
  EXPECT_THAT(script, HasSubstr("chainmail_run=\"jobs/My.Job/$SLURM_JOB_ID\"\n"));
  EXPECT_THAT(script,
              HasSubstr("export AZ_BATCHAI_OUTPUT_MODEL=/shared/o\"/$chainmail_run\"/'m x'\n"));
  EXPECT_THAT(script, HasSubstr("export MODE=\"a \\\"b\\\" \\$c $HOME\"\n"));
  EXPECT_THAT(script, HasSubstr(": \"${KEY?has no value}\"\n"));
  EXPECT_THAT(script, HasSubstr(" --per-node 1 --timeout 5m -- /bin/sh -c "));
  EXPECT_THAT(script, HasSubstr("exec launcher -x AZ_BATCHAI_JOB_NAME"));
  EXPECT_THAT(script, HasSubstr(" -n 4 --per-node 2 --grace 45s --max-restarts 2 -- /bin/sh -c "));
  EXPECT_THAT(
      export_job(parsed(modern_job(R"("ranks": 3, "per_node": 2)")), "slurm"),
      AllOf(HasSubstr("--nodes=2\n"), HasSubstr(" -n 3 --per-node 2 -- /work/jobs/train\n")));
}

// In a folder with a stand-in for the launcher, which starts one rank with the variables of -x
// alone, and a program.
void put_programs(const ScratchFolder& scratch, const std::string& train) {
  const std::string launcher = scratch.file("launcher", R"sh(#!/bin/sh
kept=" PATH TMPDIR NODE_RANK RANK "
while [ "$1" != -- ]; do
  [ "$1" != -x ] || kept="$kept$2 "
  shift
done
shift
export NODE_RANK=7 RANK=3
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p'); do
  case $kept in
    *" $name "*) ;;
    *) unset "$name" ;;
  esac
done
exec "$@"
)sh");
  const std::string program = scratch.file("train", "#!/bin/sh\n" + train + "\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
}

std::string output_of_script(const ScratchFolder& scratch, const JobSpec& spec) {
  const std::string script = scratch.file("script", export_job(spec, "slurm"));
  const std::string command = "TMPDIR=" + scratch.folder("tmp") + " PATH=" + scratch.path() +
                              ":$PATH SLURM_JOB_ID=12 sh " + script + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen");
  std::string buffer(65536, '\0');
  buffer.resize(fread(buffer.data(), 1, buffer.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0) << buffer;
  return buffer;
}

// What the script makes of a job is what sh makes of it: a stand-in shows it.
TEST(Export, TheScriptRunsWhatTheFileSays) {
  const ScratchFolder scratch;
  put_programs(scratch, "printf '[%s]' \"$MODE\" \"$PWD\" \"$@\"");
  JobFileSettings settings = some_settings();
  settings.mounts = {{"in", scratch.folder("mounted")}};
  const JobSpec spec = parse_job_file(
      R"({"chainmail": 1, "ranks": 1, "directory": ".", "environment": {"MODE": "a 'b' $$c"},
          "program": ["./train", "--id=$AZ_BATCHAI_TASK_INDEX", "it's \"$AZ_BATCHAI_JOB_NAME\"", "$$5",
                      "${output.M}", "$AZ_BATCHAI_JOB_MOUNT_ROOT/in", ""],
          "outputs": {"M": {"path": "o $$", "suffix": "s"}}, "logs": {"path": "l"}})",
      scratch.path() + "/j.json", settings);
  const std::string out = output_of_script(scratch, spec);
  const std::string& root = scratch.path();
  EXPECT_EQ(out, "[a 'b' $c][" + root + "][--id=7][it's \"j\"][$5][" + root + "/o $/jobs/j/12/s][" +
                     root + "/l/jobs/j/12/mounts/in][]");
  EXPECT_TRUE(std::filesystem::is_directory(root + "/o $/jobs/j/12/s"));
  EXPECT_EQ(std::filesystem::read_symlink(root + "/l/jobs/j/12/mounts/in"), root + "/mounted");
}

TEST(Export, VariablesHaveTheirValuesWhereTheyAreKnown) {
  const ScratchFolder scratch;
  put_programs(scratch, "printf '[%s]' \"$A\" \"$B\" \"$SEED\" \"$LOG\" \"$PWD\"");
  JobFileSettings settings = some_settings();
  settings.is_complete = false;
  const JobSpec spec = parse_job_file(
      R"({"chainmail": 1, "ranks": 1, "program": ["./train"], "directory": "$AZ_BATCHAI_JOB_TEMP",
          "environment": {"A": "$B/a", "B": "${output.M}/b", "SEED": "$NEXT", "NEXT": "n$RANK",
                          "LOG": "$AZ_BATCHAI_JOB_TEMP/$AZ_BATCHAI_TASK_INDEX", "ROOT": ")" +
          scratch.path() + R"("}, "outputs": {"M": "$ROOT/o"}})",
      scratch.path() + "/j.json", settings);
  const std::string model = scratch.path() + "/o/jobs/j/12";
  const std::string temp = scratch.path() + "/tmp/j-12";
  EXPECT_EQ(output_of_script(scratch, spec),
            "[" + model + "/b/a][" + model + "/b][n3][" + temp + "/7][" + temp + "]");
  EXPECT_TRUE(std::filesystem::is_directory(model));
}

TEST(Export, AProgramOfTheOldFormFindsItsVariables) {
  const ScratchFolder scratch;
  put_programs(scratch, "printf '[%s]' \"$AZ_BATCHAI_TASK_INDEX\" \"${AZ_BATCHAI_JOB_TEMP##*/}\"");
  const JobSpec spec = parse_job_file(
      R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": ")" + scratch.path() +
          R"(/l", "chainmailSettings": {"programFilePath": "./train"}}})",
      scratch.path() + "/j.json", some_settings());
  EXPECT_EQ(output_of_script(scratch, spec), "[7][j-12]");
}

TEST(Export, TimesAreTheLaunchersOwn) {
  const JobSpec spec = parsed(modern_job(
      R"("ranks": 1, "prepare": {"command": "true", "timeout": "2d"},
         "limits": {"stall": "500ms", "grace": "1d"})"));
  const std::string script = export_job(spec, "slurm");
  EXPECT_THAT(script, AllOf(HasSubstr("--stall-timeout 500ms"), HasSubstr("--grace 1d"),
                            HasSubstr("--timeout 2d")));
  const Options options = parse_options(std::vector<std::string>{
      "--stall-timeout", "500ms", "--grace", "1d", "--timeout", "2d", "p"});
  EXPECT_EQ(options.stall_timeout, spec.limits.stall);
  EXPECT_EQ(options.grace, spec.limits.grace);
  EXPECT_EQ(options.timeout, spec.prepare.timeout);
}

TEST(Export, NamesAndCommentsAreThoseOfTheSystem) {
  const auto exported_as = [](const std::string& name, const std::string& target) {
    return export_job(parse_job_file(modern_job("\"ranks\": 1, \"name\": \"" + name +
                                                "\", \"container\": {\"engine\": \"docker\", "
                                                "\"image\": \"i\"}, \"logs\": {\"path\": \"l\"}"),
                                     "/a\nb/job.json", some_settings()),
                      target);
  };
  EXPECT_THAT(exported_as("_1x", "jobset"), HasSubstr("name: \"job-1x\""));
  EXPECT_THAT(exported_as("__", "jobset"), HasSubstr("name: \"job\""));
  EXPECT_THAT(exported_as("7", "trainjob"),
              AllOf(HasSubstr("name: \"job-7\""), Not(HasSubstr("\nb/"))));
}

TEST(Export, ToKubernetes) {
  const JobSpec spec = exported_spec(true);
  const std::string mpi = export_job(spec, "mpijob");
  EXPECT_THAT(mpi, AllOf(HasSubstr("apiVersion: \"kubeflow.org/v2beta1\"\nkind: \"MPIJob\"\n"),
                         HasSubstr("  name: \"my-job\"\n"), HasSubstr("  slotsPerWorker: 2\n"),
                         HasSubstr("activeDeadlineSeconds: 93600\n"),
                         HasSubstr("    Worker:\n      replicas: 2\n"),
                         HasSubstr("nvidia.com/gpu: 2\n"), HasSubstr("sizeLimit: \"8Gi\"\n")));
  // Pods of one job start in any order.
  EXPECT_THAT(mpi, AllOf(HasSubstr(" --per-node 1 --wait-hosts 30m --timeout 5m "),
                         HasSubstr(" --per-node 2 --wait-hosts 30m ")));
  EXPECT_THAT(export_job(exported_spec(false), "slurm"), Not(HasSubstr("--wait-hosts")));
  // One of them starts it again.
  EXPECT_THAT(mpi, AllOf(HasSubstr("backoffLimit: 2\n"), Not(HasSubstr("--max-restarts"))));
  EXPECT_THAT(mpi, HasSubstr("- name: \"KEY\"\n"
                             "                  valueFrom:\n"
                             "                    secretKeyRef:\n"
                             "                      name: \"my-job-secrets\"\n"
                             "                      key: \"KEY\"\n"));
  EXPECT_THAT(export_job(spec, "trainjob"),
              AllOf(HasSubstr("kind: \"TrainJob\"\n"), HasSubstr("    numProcPerNode: 2\n"),
                    HasSubstr("# Its pods must have these folders: /scratch /work/jobs")));
  EXPECT_THAT(
      export_job(spec, "jobset"),
      AllOf(HasSubstr("kind: \"JobSet\"\n"), HasSubstr("completions: 4\n"),
            HasSubstr("action: \"RestartJobSetAndIgnoreMaxRestarts\"\n"),
            HasSubstr("value: \"my-job-ranks-0-0.my-job\"\n"), HasSubstr("initContainers:\n"),
            HasSubstr("maxRestarts: 2\n"), HasSubstr("restartStrategy: \"BlockingRecreate\"\n"),
            HasSubstr("TORCHELASTIC_RESTART_COUNT"), HasSubstr("name: \"temporary\"\n"),
            HasSubstr("emptyDir: {}\n")));
}

TEST(Export, NoManifestHasASecret) {
  for (const char* target : kTargetNames) {
    const std::string text = export_job(exported_spec(std::string(target) != "slurm"), target);
    EXPECT_THAT(text, Not(HasSubstr("hunter2"))) << target;
    EXPECT_THAT(text, Not(HasSubstr("t0ken"))) << target;
    EXPECT_THAT(text, HasSubstr("KEY")) << target;
    // kubectl keeps it, and the launcher's own --secret NAME=@FILE does not.
    if (std::string(target) != "slurm") {
      EXPECT_THAT(text, HasSubstr("without a line's end"));
    }
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
    EXPECT_THAT(said_of(parsed(modern_job(R"("ranks": 2, "environment": {"A": "$RANK"},
                                             "outputs": {"M": "$A/x"})"),
                               settings)),
                HasSubstr("one folder $AZ_BATCHAI_OUTPUT_M"));
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
  // YAML takes some of these for a line's end, and others for none of its characters.
  EXPECT_EQ(
      yaml_of_json("{\"a\": \"\x7f\u0085\u009f\u00a0\u2028\u2029\u202a\ufeff\uffff\U0001f600\"}"),
      "a: \"\\u007f\\u0085\\u009f\u00a0\\u2028\\u2029\u202a\\ufeff\\uffff\U0001f600\"\n");
}

}  // namespace
}  // namespace chainmail::launch
