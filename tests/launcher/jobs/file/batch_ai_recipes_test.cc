// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Batch AI's files: fifteen of the shapes of its published recipes, what each key becomes, and that
// the modern form says the same of every one that is accepted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "launcher/jobs/file/text/json_text.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using std::chrono::hours;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Values that the recipes have where secrets belong, and keys and passwords of stores.
constexpr const char* kHidden[] = {"c2VjcmV0LWJsb2Ita2V5", "bGl0ZXJhbC1zZWNyZXQ",
                                   "bW91bnQtcGFzc3dvcmQ", "st0re-key"};

const std::set<std::string> kRefused = {"brain_script.json", "brain_script_distributed.json",
                                        "tensorflow_servers.json"};

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CHAINMAIL_JOB_RECIPES)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string recipe_text(const std::string& name) {
  return text_of_file(std::string(CHAINMAIL_JOB_RECIPES) + "/" + name);
}

// With folders for all names that the recipes mount.
JobFileSettings mounted(const ScratchFolder& scratch) {
  JobFileSettings settings = some_settings();
  for (const char* name : {"logs", "scripts", "data", "external", "share"}) {
    settings.mounts[name] = scratch.folder(name);
  }
  settings.environment["STORE_KEY"] = "st0re-key";
  settings.secrets = {"STORE_KEY"};
  return settings;
}

JobSpec recipe(const std::string& name, const JobFileSettings& settings) {
  return parse_job_file(recipe_text(name), "/work/jobs/" + name, settings);
}

void expect_no_secret(const std::string& text) {
  for (const char* hidden : kHidden) EXPECT_THAT(text, Not(HasSubstr(hidden)));
}

TEST(Recipes, TwelveAreAcceptedAndThreeRefusedWithAReason) {
  const ScratchFolder scratch;
  const JobFileSettings settings = mounted(scratch);
  int accepted = 0;
  int refused = 0;
  for (const std::string& name : recipe_names()) {
    const std::string said = refusal_of_job(recipe_text(name), settings);
    EXPECT_EQ(!said.empty(), kRefused.contains(name)) << name << "\n" << said;
    ++(said.empty() ? accepted : refused);
    expect_no_secret(said);
    const bool is_brain_script = name.starts_with("brain_script");
    if (kRefused.contains(name)) {
      EXPECT_THAT(said, HasSubstr(is_brain_script ? "BrainScript is not run here"
                                                  : "there are no parameter servers here"));
    }
  }
  EXPECT_EQ(accepted, 12);
  EXPECT_EQ(refused, 3);
}

TEST(Recipes, WithoutMountsTheOptionsAreNamed) {
  const std::string said = refusal_of_job(recipe_text("horovod_pytorch.json"));
  for (const char* name : {"logs", "scripts", "external"}) {
    EXPECT_THAT(said, HasSubstr(std::string("add --mount ") + name + "=DIR")) << said;
  }
  EXPECT_THAT(said, HasSubstr("give the value by --secret STORE_KEY=@FILE"));
  expect_no_secret(said);
}

TEST(Recipes, TheModernFormSaysTheSame) {
  const ScratchFolder scratch;
  const JobFileSettings settings = mounted(scratch);
  for (const std::string& name : recipe_names()) {
    if (kRefused.contains(name)) continue;
    SCOPED_TRACE(name);
    JobFileSettings modern = settings;
    modern.environment["WANDB_API_KEY"] = "bGl0ZXJhbC1zZWNyZXQ";
    const JobSpec spec = recipe(name, settings);
    EXPECT_TRUE(spec.is_batch_ai);
    // Of a file that was checked with its mounts, and of one that was only converted.
    JobFileSettings incomplete = some_settings();
    incomplete.is_complete = false;
    for (const JobSpec& old : {spec, recipe(name, incomplete)}) {
      const std::string text = modern_text(old);
      expect_no_secret(text);
      const JobSpec again = parse_job_file(text, "/work/jobs/converted.json", modern);
      EXPECT_EQ(meaning_of(again), meaning_of(spec)) << text;
      for (std::size_t i = 0; i < spec.secrets.size(); ++i) {
        EXPECT_EQ(again.secrets[i].value, spec.secrets[i].value);
      }
      const JobSpec unmapped = parse_job_file(text, "/work/jobs/converted.json", incomplete);
      EXPECT_EQ(modern_text(unmapped), text.substr(text.find("\n{") + 1));
    }
  }
}

TEST(Recipes, NoOutputHasASecret) {
  const ScratchFolder scratch;
  const JobFileSettings settings = mounted(scratch);
  for (const std::string& name : recipe_names()) {
    if (kRefused.contains(name)) continue;
    JobSpec spec = recipe(name, settings);
    for (const std::string& warning : spec.warnings) expect_no_secret(warning);
    expect_no_secret(normalised_json(spec));
    EXPECT_EQ(spec.secrets.empty(), normalised_json(spec).find("redacted") == std::string::npos);
    spec.container.image = "";
    expect_no_secret(name == "pytorch_gloo.json" ? "" : export_job(spec, "slurm"));
  }
}

void collect_keys(const JsonNode& node, std::set<std::string>& keys) {
  for (const JsonMember& member : node.members) {
    keys.insert(member.key);
    collect_keys(member.value, keys);
  }
  for (const JsonNode& item : node.items) collect_keys(item, keys);
}

// Others are in the table of broken files, or below.
TEST(Recipes, HaveTheKeysOfTheSchema) {
  std::set<std::string> keys;
  for (const std::string& name : recipe_names()) {
    collect_keys(parse_json_text(recipe_text(name)).root, keys);
  }
  for (const char* key : {"$schema",
                          "properties",
                          "nodeCount",
                          "chainerSettings",
                          "horovodSettings",
                          "pyTorchSettings",
                          "caffe2Settings",
                          "cntkSettings",
                          "tensorFlowSettings",
                          "customMpiSettings",
                          "pythonScriptFilePath",
                          "pythonInterpreterPath",
                          "commandLineArgs",
                          "processCount",
                          "communicationBackend",
                          "commandLine",
                          "languageType",
                          "configFilePath",
                          "parameterServerCount",
                          "workerCount",
                          "masterCommandLineArgs",
                          "workerCommandLineArgs",
                          "parameterServerCommandLineArgs",
                          "stdOutErrPathPrefix",
                          "inputDirectories",
                          "id",
                          "path",
                          "outputDirectories",
                          "pathPrefix",
                          "pathSuffix",
                          "environmentVariables",
                          "name",
                          "value",
                          "secrets",
                          "valueSecretReference",
                          "jobPreparation",
                          "mountVolumes",
                          "azureFileShares",
                          "azureBlobFileSystems",
                          "fileServers",
                          "unmanagedFileSystems",
                          "relativeMountPath",
                          "mountCommand",
                          "credentials",
                          "containerSettings",
                          "imageSourceRegistry",
                          "image",
                          "serverUrl",
                          "shmSize",
                          "constraints",
                          "maxWallClockTime",
                          "schedulingPriority",
                          "cluster"}) {
    EXPECT_THAT(keys, Contains(key));
  }
}

TEST(BatchAi, EveryKeyBecomesOneOfTheModernForm) {
  const ScratchFolder scratch;
  const JobFileSettings settings = mounted(scratch);
  const JobSpec cntk = recipe("cntk_infiniband.json", settings);
  EXPECT_EQ(cntk.name, "cntk_infiniband");
  EXPECT_THAT(cntk.program, ElementsAre("/opt/conda/bin/python",
                                        "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/cntk/train_resnet.py",
                                        "--datadir", "$AZ_BATCHAI_JOB_TEMP", "-outputdir",
                                        "$AZ_BATCHAI_OUTPUT_NET", "-n", "resnet56", "-e", "5"));
  EXPECT_EQ(cntk.hosts.count, 2U);
  EXPECT_EQ(cntk.ranks, 8U);
  EXPECT_EQ(cntk.per_node, 4U);
  EXPECT_EQ(cntk.logs.path, settings.mounts.at("logs"));
  EXPECT_EQ(cntk.outputs.front().path, settings.mounts.at("logs"));
  EXPECT_EQ(cntk.prepare.command, "bash $AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/cntk/prepare.sh");
  EXPECT_EQ(cntk.container.engine, "docker");
  EXPECT_EQ(cntk.container.image, "registry.example.com/cntk:2.3-intelmpi");
  EXPECT_EQ(cntk.container.shm_size, "8g");
  EXPECT_EQ(cntk.limits.time, hours(24 * 7));
  EXPECT_THAT(cntk.warnings, Contains(HasSubstr("/properties/cluster: has no effect here")));
  EXPECT_THAT(cntk.warnings, Contains(HasSubstr("/properties/schedulingPriority: has no effect")));
  EXPECT_THAT(cntk.warnings, Contains(HasSubstr("--set container.gpus=all")));

  const JobSpec scoring = recipe("batch_scoring.json", settings);
  EXPECT_THAT(scoring.program,
              ElementsAre("/bin/sh", "-c", HasSubstr(" --out $$AZ_BATCHAI_OUTPUT_LABELS ")));
  EXPECT_EQ(scoring.ranks, 4U);
  EXPECT_EQ(scoring.inputs[1].path, settings.mounts.at("data") + "/pictures");
  EXPECT_THAT(scoring.warnings,
              Contains(AllOf(HasSubstr("/credentials"), HasSubstr("never used"))));

  const JobSpec horovod = recipe("horovod_pytorch.json", settings);
  EXPECT_EQ(horovod.outputs.front().path, settings.mounts.at("external"));
  EXPECT_EQ(horovod.outputs.front().suffix, "Nets");
  EXPECT_EQ(horovod.secrets[0].value, "bGl0ZXJhbC1zZWNyZXQ");
  EXPECT_EQ(horovod.secrets[1].value, "st0re-key");
  EXPECT_EQ(horovod.ranks, 2U);
  EXPECT_EQ(recipe("horovod_benchmark.json", settings).limits.time, hours(12));
  EXPECT_THAT(recipe("pytorch_gloo.json", settings).warnings,
              AllOf(Contains(HasSubstr("/communicationBackend: has no effect")),
                    Contains(HasSubstr("/mountCommand: is never used"))));
}

TEST(BatchAi, ACustomToolkitRunsOnTheFirstHostOnly) {
  const JobSpec spec = parsed(
      R"({"properties": {"nodeCount": 3, "stdOutErrPathPrefix": "/logs", "customToolkitSettings":
          {"commandLine": "mpirun -hostfile $AZ_BATCHAI_MPI_HOST_FILE ./x '$HOME' && echo $? $$"}}})");
  EXPECT_EQ(spec.hosts.count, 3U);
  EXPECT_EQ(spec.ranks, 1U);
  EXPECT_EQ(spec.per_node, 1U);
  EXPECT_THAT(spec.program,
              ElementsAre("/bin/sh", "-c",
                          "mpirun -hostfile $$AZ_BATCHAI_MPI_HOST_FILE ./x '$$HOME' && echo $$? "
                          "$$$$"));
}

TEST(BatchAi, AProgramOfOursNeedsNoInterpreter) {
  const std::string begin =
      R"({"name": "mine", "type": "jobs", "apiVersion": "2018-05-01", "properties": {"nodeCount": 2,
          "stdOutErrPathPrefix": "logs", )";
  const JobSpec own =
      parsed(begin + R"("chainmailSettings": {"programFilePath": "train", "commandLineArgs":
                 "--name 'a b' --cost=\\$5 --out \"$AZ_BATCHAI_JOB_NAME\"x", "processCount": 5}}})");
  EXPECT_EQ(own.name, "mine");
  EXPECT_THAT(own.program, ElementsAre("/work/jobs/train", "--name", "a b", "--cost=$$5", "--out",
                                       "${AZ_BATCHAI_JOB_NAME}x"));
  EXPECT_EQ(own.per_node, 3U);
  EXPECT_EQ(own.logs.path, "/work/jobs/logs");
  // One word changed in a file for Python.
  const JobSpec changed = parsed(
      begin + R"("chainerSettings": {"pythonScriptFilePath": "/opt/train", "pythonInterpreterPath":
                 "python3.8"}}})");
  EXPECT_THAT(changed.program, ElementsAre("/opt/train"));
  EXPECT_THAT(changed.warnings, Contains(HasSubstr("only files that end in .py")));
  const JobSpec python =
      parsed(begin + R"("chainerSettings": {"pythonScriptFilePath": "t.py", "pythonInterpreterPath":
                 "python3.8"}}})");
  EXPECT_THAT(python.program, ElementsAre("python3.8", "/work/jobs/t.py"));
}

TEST(BatchAi, TensorFlowWithoutServers) {
  const auto said_of = [](const std::string& members) {
    return refusal_of_job(
        R"({"properties": {"nodeCount": 2, "stdOutErrPathPrefix": "/l", "tensorFlowSettings":
            {"pythonScriptFilePath": "/t.py", )" +
        members + "}}}");
  };
  EXPECT_EQ(said_of(R"("masterCommandLineArgs": "-a", "workerCount": 4)"), "");
  EXPECT_EQ(said_of(R"("masterCommandLineArgs": "-a", "workerCommandLineArgs": "-a")"), "");
  EXPECT_EQ(said_of(R"("parameterServerCount": 0)"), "");
  EXPECT_THAT(said_of(R"("masterCommandLineArgs": "-a", "workerCommandLineArgs": "-b")"),
              HasSubstr("all ranks have the same arguments"));
  EXPECT_THAT(said_of(R"("parameterServerCommandLineArgs": "-s")"),
              HasSubstr("no parameter servers"));
}

// As "az batchai job show" prints them.
TEST(BatchAi, FlatFilesWithNullsAndValuesOfTheService) {
  const JobSpec spec = parsed(
      R"({"nodeCount": 1, "caffeSettings": null, "chainerSettings": {"pythonScriptFilePath": "/t.py",
          "pythonInterpreterPath": null, "processCount": 1}, "stdOutErrPathPrefix": "/logs",
          "secrets": null, "constraints": {"maxWallClockTime": "7 days, 0:00:00"}, "name": "shown",
          "executionState": "queued", "id": "/subscriptions/0", "nodCount": 1})");
  EXPECT_EQ(spec.name, "shown");
  EXPECT_EQ(spec.limits.time, hours(168));
  EXPECT_THAT(spec.warnings,
              ElementsAre(HasSubstr("/executionState: unknown key; it has no effect"),
                          HasSubstr("/nodCount: unknown key, did you mean 'nodeCount'?")));
}

TEST(BatchAi, DollarsInVariablesAreLeftAsTheyAre) {
  const JobSpec spec = parsed(batch_ai_job(
      R"("environmentVariables": [{"name": "A", "value": "$HOME/x ${HOME} $5 $$ ${A:-b} $"}])"));
  EXPECT_EQ(spec.environment.front().value, "$HOME/x ${HOME} $$5 $$$$ $${A:-b} $$");
}

TEST(ModernText, HasNoMoreThanIsNeeded) {
  EXPECT_EQ(modern_text(parsed(modern_job())),
            "{\n  \"chainmail\": 1,\n  \"name\": \"job\",\n  \"program\": [\"./train\"]\n}\n");
}

TEST(ModernText, AnythingIsReadAsItWas) {
  const ScratchFolder scratch;
  for (
      const char* members :
      {R"("directory": "/", "logs": {"path": "~x", "tag": true})",
       R"("hosts": {"from": "a/hosts", "wait": "0", "count": 3, "resize": ["./r"]}, "ranks": 3)",
       R"("inputs": {"A": "$HOME", "B": "$$x", "C": "./$HOME", "D": ".", "E": "..", "F": "/work/jobs"})",
       R"("environment": {"A": "$$ $HOME", "HOME": null}, "secrets": {"TOKEN_OF_LAUNCHER": null})",
       R"("options": {"bind-to": "core", "encrypt": true, "shards": 3})",
       R"("retry": {"failures": 2, "losses": 0, "exit_codes": [1], "wait": 0.5})",
       R"("limits": {"time": "90s", "grace": "0"}, "elastic": {"min": 1, "max": 2})",
       R"("container": {"engine": "apptainer", "image": "/i.sif", "mounts": ["x:/y:ro"]})",
       R"("prepare": {"command": "echo \"\u00e4\" $HOME", "timeout": "1m"})"}) {
    const JobSpec spec = parsed(modern_job(members));
    const JobSpec again = parsed(modern_text(spec));
    EXPECT_EQ(meaning_of(again), meaning_of(spec)) << modern_text(spec);
  }
}

}  // namespace
}  // namespace chainmail::launch
