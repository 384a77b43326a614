// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a job file of the modern form means, with all that the command line adds to it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "launcher/files/sha256.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kWhole = R"(// all keys
{ "$schema": "job.schema.json", "chainmail": 1, "name": "mnist-2",
  "program": ["./train", "--epoch", "20", "--out", "${output.MODEL}", "--data=$AZ_BATCHAI_INPUT_D"],
  "ranks": 8, "per_node": 4,
  "hosts": {"from": "h1:4,h2:4", "count": 2, "wait": "5m", "resize": ["./resize", "gpu"],
            "idle": 600},
  "directory": "run", "environment": {"OMP_NUM_THREADS": "4", "HOME": null, "P": "$HOME/$$x"},
  "secrets": {"TOKEN_OF_LAUNCHER": null, "KEY": {"file": "KEYFILE"}, "LITERAL": "l1teral"},
  "inputs": {"D": "/data/mnist/"}, "outputs": {"MODEL": {"path": "/shared/x", "suffix": "model/"},
                                               "LOG": "tb"},
  "mounts": {"ext": "MOUNT"},
  "prepare": {"command": "./prepare.sh $AZ_BATCHAI_INPUT_D", "timeout": "10m"},
  "container": {"engine": "podman", "image": "img@sha256:00", "mounts": ["data:/data:ro", "/a:/b"],
                "gpus": "all", "shm_size": "8g"},
  "limits": {"time": "12h", "stall": "10m", "grace": 30},
  "retry": {"failures": 1, "losses": 3, "exit_codes": [75, 143], "wait": "1s"},
  "elastic": {"min": 2, "max": 8}, "logs": {"path": "~/logs", "tag": true},
  "options": {"bind_to": "core", "torchrun-env": true, "shards": 8} }
)";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  text.replace(text.find(what), what.size(), with);
  return text;
}

TEST(ModernForm, EveryKeyArrives) {
  const ScratchFolder scratch;
  const std::string key = scratch.file("key", "k3y\n");
  chmod(key.c_str(), 0600);
  const std::string text =
      replaced(replaced(kWhole, "KEYFILE", key), "MOUNT", scratch.folder("mounted"));
  const JobSpec spec = parsed(text);
  EXPECT_EQ(spec.name, "mnist-2");
  EXPECT_EQ(spec.file, "/work/jobs/job.json");
  EXPECT_EQ(spec.sha256, sha256_of(text));
  EXPECT_FALSE(spec.is_batch_ai);
  EXPECT_THAT(spec.program, ElementsAre("/work/jobs/train", "--epoch", "20", "--out",
                                        "${output.MODEL}", "--data=$AZ_BATCHAI_INPUT_D"));
  EXPECT_EQ(spec.ranks, 8U);
  EXPECT_EQ(spec.per_node, 4U);
  EXPECT_EQ(spec.hosts.from, "h1:4,h2:4");
  EXPECT_EQ(spec.hosts.count, 2U);
  EXPECT_EQ(spec.hosts.wait, minutes(5));
  EXPECT_THAT(spec.hosts.resize, ElementsAre("/work/jobs/resize", "gpu"));
  EXPECT_EQ(spec.hosts.idle, minutes(10));
  EXPECT_EQ(spec.directory, "/work/jobs/run");
  ASSERT_THAT(spec.environment, SizeIs(3));
  EXPECT_EQ(spec.environment[0].value, "4");
  EXPECT_EQ(spec.environment[1].name, "HOME");
  EXPECT_EQ(spec.environment[1].value, std::nullopt);
  EXPECT_EQ(spec.environment[2].value, "$HOME/$$x");
  ASSERT_THAT(spec.secrets, SizeIs(3));
  EXPECT_EQ(spec.secrets[0].value, "t0ken-of-launcher");
  EXPECT_EQ(spec.secrets[1].value, "k3y");
  EXPECT_EQ(spec.secrets[2].value, "l1teral");
  EXPECT_EQ(spec.inputs.front().path, "/data/mnist");
  ASSERT_THAT(spec.outputs, SizeIs(2));
  EXPECT_EQ(spec.outputs[0].path, "/shared/x");
  EXPECT_EQ(spec.outputs[0].suffix, "model");
  EXPECT_EQ(spec.outputs[1].path, "/work/jobs/tb");
  EXPECT_EQ(spec.mounts.front().folder, scratch.path() + "/mounted");
  EXPECT_EQ(spec.prepare.command, "./prepare.sh $AZ_BATCHAI_INPUT_D");
  EXPECT_EQ(spec.prepare.timeout, minutes(10));
  EXPECT_EQ(spec.container.engine, "podman");
  EXPECT_EQ(spec.container.image, "img@sha256:00");
  EXPECT_THAT(spec.container.mounts, ElementsAre("/work/jobs/data:/data:ro", "/a:/b"));
  EXPECT_EQ(spec.container.gpus, "all");
  EXPECT_EQ(spec.container.shm_size, "8g");
  EXPECT_EQ(spec.limits.time, hours(12));
  EXPECT_EQ(spec.limits.stall, minutes(10));
  EXPECT_EQ(spec.limits.grace, seconds(30));
  EXPECT_EQ(spec.retry.failures, 1U);
  EXPECT_EQ(spec.retry.losses, 3U);
  EXPECT_THAT(spec.retry.exit_codes, ElementsAre(75, 143));
  EXPECT_EQ(spec.retry.wait, seconds(1));
  EXPECT_EQ(spec.elastic.min, 2U);
  EXPECT_EQ(spec.elastic.max, 8U);
  EXPECT_EQ(spec.logs.path, "/home/u/logs");
  EXPECT_TRUE(spec.logs.tag);
  ASSERT_THAT(spec.options, SizeIs(3));
  EXPECT_EQ(spec.options[0].flag, "bind-to");
  EXPECT_EQ(spec.options[0].value, "core");
  EXPECT_EQ(spec.options[1].value, std::nullopt);
  EXPECT_EQ(spec.options[2].value, "8");
  EXPECT_THAT(spec.warnings, IsEmpty());
}

TEST(ModernForm, DefaultsAreTheLaunchers) {
  const JobSpec spec = parsed(modern_job());
  EXPECT_EQ(spec.name, "job");
  EXPECT_EQ(spec.ranks, std::nullopt);
  EXPECT_EQ(spec.hosts.wait, minutes(30));
  EXPECT_EQ(spec.directory, "/work/jobs");
  EXPECT_EQ(spec.retry.losses, 20U);
  EXPECT_EQ(spec.limits.time, std::nullopt);
  EXPECT_EQ(spec.elastic.max, 0U);
  EXPECT_EQ(parsed(modern_job(R"("limits": {"time": 0, "stall": "0"})")).limits.time, std::nullopt);
}

TEST(ModernForm, ANameForEachFile) {
  const auto name_of = [](const std::string& path) {
    return parse_job_file(modern_job(), path, some_settings()).name;
  };
  EXPECT_EQ(name_of("/w/mnist.json"), "mnist");
  EXPECT_EQ(name_of("/w/a b\xC3\xA4.v2.json"), "a-b--.v2");
  EXPECT_EQ(name_of("/w/.json"), "json");
  EXPECT_EQ(name_of("/w/---"), "job");
  EXPECT_EQ(name_of("/w/" + std::string(100, 'x') + ".json"), std::string(64, 'x'));
  JobFileSettings settings = some_settings();
  settings.name = "other";
  EXPECT_EQ(parsed(modern_job(R"("name": "mine")"), settings).name, "other");
}

TEST(ModernForm, PathsAreBesideTheFile) {
  const auto program_of = [](const std::string& word) {
    return parse_job_file(R"({"chainmail": 1, "program": [")" + word + "\"]}", "/a $b/job.json",
                          some_settings())
        .program.front();
  };
  EXPECT_EQ(program_of("train"), "train");
  EXPECT_EQ(program_of("./train"), "/a $$b/train");
  EXPECT_EQ(program_of("../bin/train"), "/bin/train");
  EXPECT_EQ(program_of("~/train"), "/home/u/train");
  EXPECT_EQ(program_of("/opt/train"), "/opt/train");
  EXPECT_EQ(program_of("$HOME/train"), "$HOME/train");
  EXPECT_EQ(program_of("bin$HOME/x"), "/a $$b/bin$HOME/x");
}

TEST(ModernForm, AHostfileBesideTheFileComesBeforeAList) {
  const ScratchFolder scratch;
  const std::string hosts = scratch.file("hosts", "n1 slots=2\n");
  const auto from_of = [&](const std::string& from) {
    return parse_job_file(modern_job("\"hosts\": {\"from\": \"" + from + "\"}"),
                          scratch.path() + "/job.json", some_settings())
        .hosts.from;
  };
  EXPECT_EQ(from_of("hosts"), hosts);
  EXPECT_EQ(from_of("n1:2,n2"), "n1:2,n2");
  EXPECT_EQ(from_of("./none"), scratch.path() + "/none");
}

TEST(Sets, ReplaceAddAndAreTyped) {
  JobFileSettings settings = some_settings();
  settings.sets = {
      "limits.time=1h",     "ranks=4",           "name=007",        "logs.tag=true",
      "environment.A=1",    "environment.B=a=b", "ranks=6",         "program=[\"p\", \"2\"]",
      "environment.C=true", "options.shards=3",  "limits.grace=2.5"};
  const JobSpec spec = parsed(modern_job(R"("limits": {"time": "2h", "stall": "1m"})"), settings);
  EXPECT_EQ(spec.limits.time, hours(1));
  EXPECT_EQ(spec.limits.stall, minutes(1));
  EXPECT_EQ(spec.limits.grace, std::chrono::milliseconds(2500));
  EXPECT_EQ(spec.ranks, 6U);
  EXPECT_EQ(spec.name, "007");
  EXPECT_TRUE(spec.logs.tag);
  EXPECT_EQ(spec.environment[0].value, "1");
  EXPECT_EQ(spec.environment[1].value, "a=b");
  EXPECT_EQ(spec.environment[2].value, "true");
  EXPECT_THAT(spec.program, ElementsAre("p", "2"));
  EXPECT_EQ(spec.options.front().value, "3");
}

TEST(Sets, ReachTheModernViewOfAnOldFile) {
  JobFileSettings settings = some_settings();
  settings.sets = {"container.gpus=all", "limits.time=1h", "hosts.count=3", "retry.losses=0"};
  const JobSpec spec = parsed(
      batch_ai_job(R"("containerSettings": {"imageSourceRegistry": {"image": "i"}})"), settings);
  EXPECT_EQ(spec.container.gpus, "all");
  EXPECT_EQ(spec.limits.time, hours(1));
  EXPECT_EQ(spec.hosts.count, 3U);
  EXPECT_EQ(spec.retry.losses, 0U);
  EXPECT_THAT(spec.warnings, IsEmpty());
}

TEST(Sets, MistakesNameTheOptionAndNotItsValue) {
  struct Wrong {
    const char* set;
    const char* says;
  };
  const Wrong kWrong[] = {
      {"limits.tim=1h", "--set limits.tim: /limits/tim: unknown key, did you mean 'time'?"},
      {"limits.time=hunter2", "--set limits.time: /limits/time: must be a time"},
      {"ranks=hunter2", "--set ranks: /ranks: must be a whole number"},
      {"ranks=1.5", "must be a whole number"},
      {"hunter2", "--set: wants KEY=VALUE"},
      {"=hunter2", "--set: wants KEY=VALUE"},
      {"limits..time=hunter2", "--set: wants KEY=VALUE"},
      {"program.0=hunter2", "/program: is a list, which has no keys"},
      {"secrets.T=hunter2", "has no place on the command line"},
      {"secrets.T=12345678", "has no place on the command line"},
      {"chainmail=2", "must be 1"},
      {"properties.nodeCount=4", "hosts.count for nodeCount"},
      {"environment.A=hunter2\xff", "not UTF-8"},
  };
  for (const Wrong& wrong : kWrong) {
    JobFileSettings settings = some_settings();
    settings.sets = {wrong.set};
    const std::string said = refusal_of_job(modern_job(), settings);
    EXPECT_THAT(said, HasSubstr(wrong.says)) << wrong.set;
    EXPECT_THAT(said, Not(HasSubstr("hunter2"))) << wrong.set;
    EXPECT_THAT(said, Not(HasSubstr("12345678"))) << wrong.set;
  }
}

TEST(Mounts, TheNearestSayWins) {
  const ScratchFolder scratch;
  JobFileSettings settings = some_settings();
  const std::string members =
      R"("mounts": {"a": null, "b": ")" + scratch.folder("file") +
      R"(", "c": null, "d": null}, "inputs": {"X": )"
      R"("$AZ_BATCHAI_JOB_MOUNT_ROOT/d/x/", "Y": "${AZ_BATCHAI_MOUNT_ROOT}/b"})";
  settings.mounts = {{"b", scratch.folder("option")}};
  settings.environment["CHAINMAIL_MOUNTS"] =
      "a=" + scratch.folder("variable") + ":b=/wrong:c=" + scratch.folder("variable");
  settings.mounts_file = scratch.file(
      "mounts.json", "{\"a\": \"/wrong\", \"d\": \"" + scratch.folder("table") + "\"} // mine\n");
  const JobSpec spec = parsed(modern_job(members), settings);
  std::map<std::string, std::string> folders;
  for (const JobSpec::Mount& mount : spec.mounts) folders[mount.name] = mount.folder;
  EXPECT_EQ(folders["a"], scratch.path() + "/variable");
  EXPECT_EQ(folders["b"], scratch.path() + "/option");
  EXPECT_EQ(folders["c"], scratch.path() + "/variable");
  EXPECT_EQ(folders["d"], scratch.path() + "/table");
  EXPECT_EQ(spec.inputs[0].path, scratch.path() + "/table/x");
  EXPECT_EQ(spec.inputs[1].path, scratch.path() + "/option");
}

TEST(Mounts, NamesInPathsProgramsAndLinesAreFound) {
  const ScratchFolder scratch;
  JobFileSettings settings = some_settings();
  settings.mounts = {{"deep/er", scratch.folder("d")}, {"x", scratch.folder("$x")}};
  const JobSpec spec = parsed(modern_job(R"("inputs": {"A": "$AZ_BATCHAI_MOUNT_ROOT/deep/er/f", )"
                                         R"("B": "$AZ_BATCHAI_MOUNT_ROOT/x/$HOME"})"),
                              settings);
  EXPECT_EQ(spec.inputs[0].path, scratch.path() + "/d/f");
  EXPECT_EQ(spec.inputs[1].path, scratch.path() + "/$$x/$HOME");
  const std::string said = refusal_of_job(
      R"({"chainmail": 1, "program": ["/bin/sh", "-c", "ls $$AZ_BATCHAI_JOB_MOUNT_ROOT/one/x"],
          "prepare": {"command": "cat ${AZ_BATCHAI_MOUNT_ROOT}/two"},
          "environment": {"E": "$AZ_BATCHAI_MOUNT_ROOT/three,4", "F": "$AZ_BATCHAI_MOUNT_ROOT"},
          "logs": {"path": "$AZ_BATCHAI_MOUNT_ROOT/four"}})");
  for (const char* name : {"one", "two", "three", "four"}) {
    EXPECT_THAT(said, HasSubstr(std::string("add --mount ") + name + "=DIR"));
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3);
}

TEST(Mounts, MistakesInEverySource) {
  const ScratchFolder scratch;
  const std::string job = modern_job(R"("mounts": {"a": null})");
  JobFileSettings settings = some_settings();
  const auto said_with = [&](const std::string& variable, const std::string& file,
                             std::map<std::string, std::string> mounts) {
    settings.environment["CHAINMAIL_MOUNTS"] = variable;
    settings.mounts_file = file.empty() ? "" : scratch.file("m.json", file);
    settings.mounts = std::move(mounts);
    return refusal_of_job(job, settings);
  };
  EXPECT_THAT(said_with("", "", {}), HasSubstr("job.json:1:53: /mounts/a: the mount 'a' is not"));
  EXPECT_THAT(said_with("a", "", {}), HasSubstr("$CHAINMAIL_MOUNTS: wants NAME=DIR"));
  EXPECT_THAT(said_with("a=rel", "", {}), HasSubstr("$CHAINMAIL_MOUNTS, a: the folder of a mount"));
  EXPECT_THAT(said_with("", "{\"a\": 1}", {}), HasSubstr("m.json:1:7: /a: must be a text"));
  EXPECT_THAT(said_with("", "{\"a\": }", {}), HasSubstr("m.json:1:7: a value is missing"));
  EXPECT_THAT(said_with("", "[]", {}), HasSubstr("m.json:1:1: must be an object"));
  EXPECT_THAT(said_with("", "", {{"a", "/none/such"}}),
              HasSubstr("--mount a: the folder of mount 'a' is not there: /none/such"));
  EXPECT_THAT(said_with("", "", {{"../a", "/"}}), HasSubstr("--mount ../a: the name of a mount"));
  EXPECT_THAT(said_with("", "", {{"a", "/"}, {"a/b", "/"}}), HasSubstr("lies inside the mount"));
  EXPECT_THAT(said_with("b=/", "", {{"aa", "/"}}), HasSubstr("--mount a=DIR"));
  // Who names no mount is not told what is wrong with them.
  settings.environment["CHAINMAIL_MOUNTS"] = "nonsense";
  EXPECT_EQ(refusal_of_job(modern_job(), settings), "");
}

TEST(Secrets, TheOptionComesFirst) {
  const ScratchFolder scratch;
  const std::string file = scratch.file("secret", "from-file\r\n");
  chmod(file.c_str(), 0644);
  JobFileSettings settings = some_settings();
  settings.secrets = {"A=@" + file, "TOKEN_OF_LAUNCHER", "B=@" + file};
  const JobSpec spec =
      parsed(modern_job(R"("secrets": {"A": "literal", "N": {"file": "/dev/null"}}, )"
                        R"("environment": {"B": null})"),
             settings);
  std::map<std::string, std::string> values;
  for (const JobSpec::Secret& secret : spec.secrets) values[secret.name] = secret.value;
  EXPECT_EQ(values["A"], "from-file");
  EXPECT_EQ(values["B"], "from-file");
  EXPECT_EQ(values["N"], "");
  EXPECT_EQ(values["TOKEN_OF_LAUNCHER"], "t0ken-of-launcher");
  EXPECT_THAT(spec.secrets, SizeIs(4));
  EXPECT_THAT(spec.environment, IsEmpty());
  ASSERT_THAT(spec.warnings, SizeIs(2));
  EXPECT_THAT(spec.warnings[0], AllOf(HasSubstr("--secret A: others"), HasSubstr("chmod 600")));
}

TEST(Secrets, AFileOfAnOptionIsWhereTheUserIs) {
  const ScratchFolder scratch;
  (void)scratch.file("s", "here\n");
  const auto folder = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  JobFileSettings settings = some_settings();
  settings.environment["HOME"] = scratch.path();
  settings.secrets = {"A=@s", "B=@~/s"};
  const JobSpec spec = parsed(modern_job(), settings);
  std::filesystem::current_path(folder);
  ASSERT_THAT(spec.secrets, SizeIs(2));
  EXPECT_EQ(spec.secrets[0].value, "here");
  EXPECT_EQ(spec.secrets[1].value, "here");
}

TEST(Secrets, MistakesHaveNoValues) {
  const ScratchFolder scratch;
  const std::string zero = scratch.file("zero", std::string("hunter2\0", 8));
  const std::string large = scratch.file("large", "hunter2" + std::string(70000, 'x'));
  struct Wrong {
    std::string option;
    std::string says;
  };
  const Wrong kWrong[] = {
      {"T=hunter2", "--secret T: a value on the command line can be read by everybody"},
      {"T=", "'=' wants @FILE"},
      {"hunter2=", "'=' wants @FILE"},
      {"T=@/none/such", "--secret T: cannot open the secret's file /none/such"},
      {"T=@/", "is a directory"},
      {"T=@" + zero, "no zero bytes"},
      {"T=@" + large, "64 KiB"},
      {"T", "--secret T: the launcher's environment has no such variable"},
      {"1T", "--secret: wants the name"},
      {"a-b=hunter2", "--secret: wants the name"},
  };
  for (const Wrong& wrong : kWrong) {
    JobFileSettings settings = some_settings();
    settings.secrets = {wrong.option};
    const std::string said = refusal_of_job(modern_job(), settings);
    EXPECT_THAT(said, HasSubstr(wrong.says)) << wrong.option;
    EXPECT_THAT(wrong.option == "hunter2=" ? "" : said, Not(HasSubstr("hunter2")));
  }
}

TEST(Secrets, AFileThatOthersCanReadIsWarnedAbout) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("job.json", modern_job(R"("secrets": {"A": "l1teral"})"));
  chmod(path.c_str(), 0640);
  const JobSpec open = read_job_file(path, some_settings());
  ASSERT_THAT(open.warnings, SizeIs(1));
  EXPECT_THAT(open.warnings[0], AllOf(HasSubstr("/secrets/A: others may read this file"),
                                      HasSubstr("chmod 600 " + path), Not(HasSubstr("l1teral"))));
  chmod(path.c_str(), 0600);
  EXPECT_THAT(read_job_file(path, some_settings()).warnings, IsEmpty());
}

TEST(ModernForm, NullsMustHaveAValueSomewhere) {
  const std::string job = modern_job(R"("environment": {"NO": null}, "secrets": {"S": null})");
  const std::string said = refusal_of_job(job);
  EXPECT_THAT(said, HasSubstr("/environment/NO: null stands for the launcher's own NO"));
  EXPECT_THAT(said, HasSubstr("/secrets/S: has no value: set S in the launcher's environment, or "
                              "add --secret S=@FILE"));
  JobFileSettings settings = some_settings();
  settings.is_complete = false;
  EXPECT_EQ(refusal_of_job(job, settings), "");
}

TEST(ModernForm, UnknownVariablesAreWarnedAbout) {
  const JobSpec spec = parsed(
      R"({"chainmail": 1, "program": ["p", "$RANK $LOCAL_RANK $HOME $MINE $UNKNOWN $CHAINMAIL_X",
          "$OMPI_COMM_WORLD_RANK $MASTER_ADDR"], "environment": {"MINE": "$OTHER"},
          "options": {"torchrun-env": true}})");
  ASSERT_THAT(spec.warnings, SizeIs(2));
  EXPECT_THAT(spec.warnings[0], HasSubstr("$UNKNOWN is empty on hosts that do not have it"));
  EXPECT_THAT(spec.warnings[1], HasSubstr("/environment/MINE: $OTHER"));
}

TEST(ModernForm, AFileIsReadWithItsPlace) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("my.json", modern_job(R"("inputs": {"A": "data"})"));
  const JobSpec spec = read_job_file(path, some_settings());
  EXPECT_EQ(spec.file, path);
  EXPECT_EQ(spec.name, "my");
  EXPECT_EQ(spec.inputs.front().path, scratch.path() + "/data");
  EXPECT_THROW((void)read_job_file(scratch.path() + "/none.json", some_settings()), UsageError);
  EXPECT_THROW((void)read_job_file(scratch.path(), some_settings()), UsageError);
  const std::string large = scratch.file("large.json", std::string((1U << 20U) + 1, ' '));
  EXPECT_THROW((void)read_job_file(large, some_settings()), UsageError);
  EXPECT_THAT(refusal_of_job(std::string((1U << 20U) + 1, ' ')), HasSubstr("1 MiB at most"));
}

}  // namespace
}  // namespace chainmail::launch
