// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Job files that are wrong: where, and what is said.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "launcher/job/text.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BrokenFile {
  std::string text;
  std::string where;  // "LINE:COLUMN: POINTER", or without a pointer
  std::string says;
};

void PrintTo(const BrokenFile& broken, std::ostream* out) { *out << broken.where; }

// Members of the modern form begin at 1:42, those of Batch AI at 1:119.
std::string modern(const std::string& members) { return modern_job(members); }
std::string old(const std::string& members) { return batch_ai_job(members); }

std::vector<BrokenFile> broken_files_of_any_form() {
  return {
      {"", "1:1", "there is nothing here"},
      {"{\"chainmail\": 1,\n \"program\": [\"a\"],}", "2:19", "take it out"},
      {"{\"chainmail\": 1 \"program\": []}", "1:17", "',' or '}' is missing"},
      {"{\"chainmail\": 1, \"program\": [\"a\", ]}", "1:35: /program", "take it out"},
      {"{\"chainmail\": True}", "1:15", "no 'True' in JSON"},
      {"chainmail: 1\nprogram: [a]\n", "1:1", "this is no value"},
      {"{\"chainmail\": 1, \"name\": \"a", "1:26", "no closing quote"},
      {"{\"chainmail\": 1,\n \"ranks\": 2, \"ranks\": 3}", "2:14: /ranks", "stands at 2:2 already"},
      {"{\"name\": \"\xff\"}", "1:11", "not UTF-8"},
      {"[]", "1:1", "must be an object, not a list"},
      {"\"text\"", "1:1", "must be an object, not a text"},
      {"{}", "1:1", "this is no job file"},
      {"{\"chanmail\": 1}", "1:1", "'chanmail', did you mean 'chainmail'?"},
      {"{\"chainmail\": 1, \"properties\": {}}", "1:15: /chainmail", "one form"},
      {"{\"$schema\": \"https://x/BatchAI/job.json\", \"chainmail\": 1}", "1:56: /chainmail",
       "one form"},
  };
}

std::vector<BrokenFile> broken_modern_files() {
  return {
      {"{\"chainmail\": 2, \"program\": [\"a\"]}", "1:15: /chainmail", "must be 1"},
      {"{\"chainmail\": \"1\", \"program\": [\"a\"]}", "1:15: /chainmail", "must be 1"},
      {"{\"chainmail\": 1}", "1:1", "'program' is missing"},
      {"{\"chainmail\": 1, \"program\": \"./a b\"}", "1:29: /program", "must be a list of words"},
      {"{\"chainmail\": 1, \"program\": []}", "1:29: /program", "name of a program is missing"},
      {"{\"chainmail\": 1, \"program\": [\"\"]}", "1:29: /program", "name of a program is missing"},
      {"{\"chainmail\": 1, \"program\": [\"a\", 20]}", "1:35: /program/1",
       "must be a text, not a number; put it in double quotes"},
      {"{\"chainmail\": 1, \"program\": [\"a\", \"$(date)\"]}", "1:35: /program/1",
       "run a command"},
      {"{\"chainmail\": 1, \"program\": [\"a\", \"${input.DTA}\"], \"inputs\": {\"DATA\": \"/d\"}}",
       "1:35: /program/1", "$input.DTA is not known, did you mean 'AZ_BATCHAI_INPUT_DATA'?"},
      {"{\"chainmail\": 1, \"program\": [\"a\", \"$AZ_BATCHAI_TASK_INDX\"]}", "1:35: /program/1",
       "did you mean 'AZ_BATCHAI_TASK_INDEX'?"},
      {"{\"chainmail\": 1, \"program\": [\"a\", \"${output.M}\"]}", "1:35: /program/1",
       "no output has this id"},
      {"{\"chainmail\": 1, \"program\": [\"sh\", \"-c\", \"$$AZ_BATCHAI_NO_SUCH\"]}",
       "1:42: /program/2", "$AZ_BATCHAI_NO_SUCH is not known"},
      {modern("\"rank\": 2"), "1:42: /rank", "unknown key, did you mean 'ranks'?"},
      {modern("\"colour\": 2"), "1:42: /colour", "unknown key; known here are $schema, chainmail"},
      {modern("\"name\": \"a b\""), "1:50: /name", "1 to 64 letters"},
      {modern("\"name\": \"..\""), "1:50: /name", "1 to 64 letters"},
      {modern("\"ranks\": 0"), "1:51: /ranks", "whole number from 1 to 65536"},
      {modern("\"ranks\": 2.5"), "1:51: /ranks", "whole number"},
      {modern("\"ranks\": \"2\""), "1:51: /ranks", "whole number from 1 to 65536, not a text"},
      {modern("\"ranks\": 9, \"per_node\": 4, \"hosts\": {\"count\": 2}"), "1:51: /ranks",
       "9 ranks do not fit on 2 hosts with 4 each"},
      {modern("\"hosts\": {\"form\": \"h\"}"), "1:52: /hosts/form", "did you mean 'from'?"},
      {modern("\"hosts\": {\"from\": \"h1:x\"}"), "1:60: /hosts/from", "no list of hosts"},
      {modern("\"hosts\": {\"idle\": \"1m\"}"), "1:60: /hosts/idle", "without 'resize'"},
      {modern("\"hosts\": {\"wait\": \"1 week\"}"), "1:60: /hosts/wait", "must be a time"},
      {modern("\"hosts\": []"), "1:51: /hosts", "must be an object, not a list"},
      {modern("\"environment\": {\"A\": 4}"), "1:63: /environment/A", "put it in double quotes"},
      {modern("\"environment\": {\"A-B\": \"4\"}"), "1:58: /environment/A-B", "letters, digits"},
      {modern("\"environment\": {\"RANK\": \"4\"}"), "1:58: /environment/RANK",
       "the launcher sets"},
      {modern("\"environment\": {\"A\": \"x\"}, \"secrets\": {\"A\": \"y\"}"), "1:81: /secrets/A",
       "set at 1:58 already"},
      {modern("\"environment\": {\"A\": \"${B\"}"), "1:63: /environment/A", "no '}'"},
      {modern("\"environment\": {\"A\": null}"), "1:58: /environment/A", "is not set"},
      {modern("\"secrets\": {\"A\": {\"value\": \"x\"}}"), "1:59: /secrets/A", "'file' is missing"},
      {modern("\"inputs\": {\"a-b\": \"/x\"}"), "1:53: /inputs/a-b", "an id has letters"},
      {modern("\"inputs\": {\"A\": \"\"}"), "1:58: /inputs/A", "is empty"},
      {modern("\"inputs\": {\"A\": \"/x/$RANK\"}"), "1:58: /inputs/A",
       "another value on each rank"},
      {modern("\"outputs\": {\"A\": {\"suffix\": \"x\"}}"), "1:59: /outputs/A",
       "'path' is missing"},
      {modern("\"outputs\": {\"A\": {\"path\": \"x\", \"suffix\": \"../y\"}}"),
       "1:83: /outputs/A/suffix", "below the job's folder"},
      {modern("\"outputs\": {\"A\": \"$AZ_BATCHAI_JOB_TEMP/x\"}"), "1:59: /outputs/A",
       "no value yet"},
      {modern("\"logs\": {\"path\": \"$AZ_BATCHAI_MOUNT_ROOT\"}"), "1:59: /logs/path",
       "where NAME is that of a mount"},
      {modern("\"mounts\": {\"/a\": null}"), "1:53: /mounts/~1a", "the name of a mount"},
      {modern("\"prepare\": {\"command\": \"\"}"), "1:65: /prepare/command", "is empty"},
      {modern("\"container\": {\"engine\": \"lxc\", \"image\": \"a b\"}"),
       "1:66: /container/engine", "podman, docker or apptainer"},
      {modern("\"container\": {\"engine\": \"podman\", \"image\": \"i\", \"mounts\": [\"/a\"]}"),
       "1:101: /container/mounts/0", "FOLDER:FOLDER-INSIDE"},
      {modern("\"container\": {\"engine\": \"podman\", \"image\": \"i\", \"mounts\": [\"/a://\"]}"),
       "1:101: /container/mounts/0", "is the image itself"},
      {modern("\"container\": {\"engine\": \"podman\", \"image\": \"i\", "
              "\"mounts\": [\"/a:/b/c\", \"/d:/b//c/:ro\"]}"),
       "1:112: /container/mounts/1", "mounted at /b/c already"},
      {modern(
           "\"container\": {\"engine\": \"podman\", \"image\": \"i\", \"mounts\": [\"$HOME:/a\"]}"),
       "1:101: /container/mounts/0", "no variables are expanded here"},
      {modern("\"limits\": {\"time\": -1}"), "1:61: /limits/time", "must be a time"},
      {modern("\"retry\": {\"exit_codes\": [0]}"), "1:67: /retry/exit_codes/0", "from 1 to 255"},
      {modern("\"elastic\": {\"min\": 4, \"max\": 2}"), "1:53: /elastic",
       "'min' is more than 'max'"},
      {modern("\"elastic\": {\"min\": 1, \"max\": 2}, \"ranks\": 3"), "1:84: /ranks",
       "outside of 'elastic'"},
      {modern("\"options\": {\"bind-too\": \"core\"}"), "1:54: /options/bind-too",
       "did you mean 'bind-to'?"},
      {modern("\"options\": {\"np\": 4}"), "1:54: /options/np", "say 'ranks' in its place"},
      {modern("\"options\": {\"hostfile\": \"h\"}"), "1:54: /options/hostfile",
       "say 'hosts.from' in its place"},
      {modern("\"options\": {\"dry-run\": true}"), "1:54: /options/dry-run", "the command line"},
      {modern("\"options\": {\"bind-to\": \"moon\"}"), "1:65: /options/bind-to", "must be core"},
      {modern("\"options\": {\"--tree\": \"no\"}"), "1:54: /options/--tree", "without dashes"},
      {modern("\"options\": {\"encrypt\": false}"), "1:65: /options/encrypt", "is left out"},
      {modern("\"options\": {\"map-by\": \"ppr:2:node\"}"), "1:64: /options/map-by", "'per_node'"},
  };
}

std::vector<BrokenFile> broken_batch_ai_files() {
  return {
      {"{\"properties\": []}", "1:16: /properties", "must be an object, not a list"},
      {"{\"$schema\": \"x/BatchAI/cluster.json\"}", "1:13: /$schema", "machines and not a job"},
      {"{\"properties\": {\"nodeCont\": 2}}", "1:17: /properties/nodeCont",
       "unknown key, did you mean 'nodeCount'?"},
      {"{\"properties\": {\"nodeCont\": 2}}", "1:16: /properties", "'nodeCount' is missing"},
      {"{\"properties\": {\"nodeCount\": 2, \"stdOutErrPathPrefix\": \"/l\"}}", "1:16: /properties",
       "no program"},
      {"{\"nodeCount\": 0, \"stdOutErrPathPrefix\": \"/l\"}", "1:15: /nodeCount",
       "from 1 to 65536"},
      {old("\"pyTorchSettings\": {}"), "1:138: /properties/pyTorchSettings",
       "there is 'chainerSettings' already"},
      {old("\"inputDirectories\": [{\"id\": \"A\"}]"), "1:140: /properties/inputDirectories/0",
       "'path' is missing"},
      {old("\"inputDirectories\": [{\"id\": \"A\", \"path\": \"/a\"},\n {\"id\": \"A\", \"path\": "
           "\"/b\"}]"),
       "2:9: /properties/inputDirectories/1/id", "'A' stands at 1:147 already"},
      {old("\"inputDirectories\": {}"), "1:139: /properties/inputDirectories", "must be a list"},
      {old("\"outputDirectories\": [{\"id\": \"A\", \"pathPrefix\": "
           "\"$AZ_BATCHAI_MOUNT_ROOT/x\"}]"),
       "1:167: /properties/outputDirectories/0/pathPrefix", "add --mount x=DIR"},
      {old("\"environmentVariables\": [{\"name\": \"A\", \"value\": 1}]"),
       "1:167: /properties/environmentVariables/0/value", "put it in double quotes"},
      {old("\"secrets\": [{\"name\": \"A\"}]"), "1:131: /properties/secrets/0",
       "one of 'value' and 'valueSecretReference'"},
      {old("\"secrets\": [{\"name\": \"A\", \"valueSecretReference\": {\"secretUrl\": \"u\"}}]"),
       "1:169: /properties/secrets/0/valueSecretReference", "key vaults are not asked here"},
      {old("\"constraints\": {\"maxWallClockTime\": \"P1M\"}"),
       "1:155: /properties/constraints/maxWallClockTime", "years and months"},
      {old("\"constraints\": {\"maxWallClockTime\": \"PT0S\"}"),
       "1:155: /properties/constraints/maxWallClockTime", "must be a time"},
      {old("\"containerSettings\": {\"imageSourceRegistry\": {\"image\": \"i\", \"credentials\": "
           "{\"username\": \"u\", \"password\": \"hunter2\"}}}"),
       "1:194: /properties/containerSettings/imageSourceRegistry/credentials", "log in once"},
      {old("\"jobPreparation\": {\"commandLine\": \"x $AZ_BATCHAI_INPUT_A\"}"),
       "1:153: /properties/jobPreparation/commandLine", "no input has this id"},
      {"{\"properties\": {\"nodeCount\": 1, \"stdOutErrPathPrefix\": \"/l\", \"caffeSettings\": "
       "{}}}",
       "1:79: /properties/caffeSettings", "run caffe by customMpiSettings"},
      {"{\"properties\": {\"nodeCount\": 1, \"stdOutErrPathPrefix\": \"/l\", "
       "\"chainmailSettings\": "
       "{\"programFilePath\": \"/p\", \"commandLineArgs\": \"a *.txt\"}}}",
       "1:128: /properties/chainmailSettings/commandLineArgs", "character 3 of it"},
      {"{\"properties\": {\"nodeCount\": 1, \"stdOutErrPathPrefix\": \"/l\", "
       "\"customMpiSettings\": "
       "{\"commandLine\": \"p $AZ_BATCHAI_PS_HOSTS\"}}}",
       "1:99: /properties/customMpiSettings/commandLine", "no parameter servers here"},
  };
}

class BrokenFiles : public ::testing::TestWithParam<BrokenFile> {};

TEST_P(BrokenFiles, HaveAPlaceAndAReason) {
  const BrokenFile& broken = GetParam();
  const std::string said = refusal_of_job(broken.text);
  std::vector<std::string> lines = split(said, '\n');
  const std::string begin = "job.json:" + broken.where + ": ";
  EXPECT_THAT(lines,
              ::testing::Contains(::testing::AllOf(StartsWith(begin), HasSubstr(broken.says))))
      << broken.text;
  EXPECT_THAT(said, ::testing::Not(HasSubstr("hunter2")));
}

INSTANTIATE_TEST_SUITE_P(AnyForm, BrokenFiles, ::testing::ValuesIn(broken_files_of_any_form()));
INSTANTIATE_TEST_SUITE_P(Modern, BrokenFiles, ::testing::ValuesIn(broken_modern_files()));
INSTANTIATE_TEST_SUITE_P(BatchAi, BrokenFiles, ::testing::ValuesIn(broken_batch_ai_files()));

TEST(BrokenFilesTest, AreManyAndTheirMistakesAreToldAtOnce) {
  EXPECT_GE(broken_files_of_any_form().size() + broken_modern_files().size() +
                broken_batch_ai_files().size(),
            60U);
  const std::string said = refusal_of_job(
      "{\"chainmail\": 1, \"program\": [1],\n \"rank\": 2, \"limits\": {\"time\": []},\n"
      " \"inputs\": {\"A\": 5}, \"hosts\": {\"count\": \"x\"}}");
  EXPECT_THAT(split(said, '\n'),
              ::testing::ElementsAre(StartsWith("job.json:1:30: /program/0: must be a text"),
                                     StartsWith("job.json:2:2: /rank: unknown key"),
                                     StartsWith("job.json:2:32: /limits/time: must be"),
                                     StartsWith("job.json:3:18: /inputs/A: must be a text"),
                                     StartsWith("job.json:3:41: /hosts/count: must be a whole")));
  std::string many = "{\"chainmail\": 1, \"program\": [\"a\"]";
  for (int i = 0; i < 150; ++i) many += ", \"x" + std::to_string(i) + "\": 1";
  const std::vector<std::string> lines = split(refusal_of_job(many + "}"), '\n');
  EXPECT_EQ(lines.size(), 101U);
  EXPECT_EQ(lines.back(), "job.json: and 50 more like these");
}

TEST(BrokenFilesTest, NothingOfATerminalsLanguageIsRepeated) {
  const std::string said = refusal_of_job(
      "{\"chainmail\": 1, \"program\": [\"a\"], \"\\u001b[31mred\": 1, \"inputs\": {\"\\u0007\": "
      "\"x\"},"
      " \"options\": {\"\\u001b\": 1}}");
  for (const char c : said) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << said;
}

}  // namespace
}  // namespace chainmail::launch
