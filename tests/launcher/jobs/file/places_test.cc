// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders whose paths have variables: which the launcher replaces, which hosts do, and which have
// no place there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "launcher/run/job_file/job_options.h"
#include "launcher/run/job_file/job_variables.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobFileSettings scratch_settings() {
  JobFileSettings settings = some_settings();
  settings.environment["SCRATCH"] = "/scratch";
  settings.environment["EMPTY"] = "";
  settings.environment["HERE"] = "here";
  return settings;
}

constexpr const char* kPlaces =
    R"("environment": {"USER_DIR": "$SCRATCH/$WHO", "WHO": "me$$", "SCRATCH": "$SCRATCH/x"},
       "inputs": {"D": "$DATA/$$x", "E": "in$$"},
       "outputs": {"M": "$USER_DIR//r/../s", "N": "o$$", "H": "~/$WHO"},
       "logs": {"path": "$SCRATCH/logs"})";

TEST(Places, OfTheLauncherHaveItsValuesAndTheFiles) {
  const JobSpec spec = parsed(modern_job(kPlaces), scratch_settings());
  const JobPlaces places = places_of(spec, "/state/job", "7");
  EXPECT_EQ(places.outputs[0].path, "/scratch/x/me$/s/jobs/job/7");
  EXPECT_EQ(places.outputs[1].path, "/work/jobs/o$/jobs/job/7");
  EXPECT_EQ(places.outputs[2].path, "/home/u/me$/jobs/job/7");
  EXPECT_EQ(places.stdouterr, "/scratch/x/logs/jobs/job/7");
  EXPECT_EQ(places.inputs[1].path, "/work/jobs/in$");
}

TEST(Places, OfInputsAreLookedForByEachHost) {
  const JobSpec spec = parsed(modern_job(kPlaces), scratch_settings());
  const JobPlaces places = places_of(spec, "/state/job", "7");
  EXPECT_EQ(places.inputs[0].path, "$DATA/$$x");
  std::map<std::string, std::string> patterns;
  for (const ExportedVariable& variable : job_variables(spec, places, {}, false)) {
    patterns[variable.name] = variable.value.value_or("");
  }
  EXPECT_EQ(patterns["AZ_BATCHAI_INPUT_D"], "$DATA/$$x");
  EXPECT_EQ(patterns["AZ_BATCHAI_INPUT_E"], "/work/jobs/in$$");
  EXPECT_EQ(patterns["AZ_BATCHAI_OUTPUT_N"], "/work/jobs/o$$/jobs/job/7");
  EXPECT_EQ(patterns["AZ_BATCHAI_STDOUTERR_DIR"], "/scratch/x/logs/jobs/job/7");
  // But those that a container mounts.
  const std::string container = R"("container": {"engine": "docker", "image": "i"})";
  EXPECT_THAT(
      refusal_of_job(modern_job(container + R"(, "inputs": {"D": "$DATA/x"})"), scratch_settings()),
      HasSubstr("/inputs/D: $DATA has no value here"));
  EXPECT_EQ(parsed(modern_job(container + R"(, "inputs": {"D": "$SCRATCH/x"})"), scratch_settings())
                .inputs.front()
                .path,
            "/scratch/x");
}

TEST(Places, WithoutAValueHereAreRefused) {
  struct Wrong {
    const char* path;
    const char* says;
  };
  const Wrong kWrong[] = {
      {"$NONE/x", "$NONE has no value here, and the launcher must know this folder"},
      {"$EMPTY/x", "$EMPTY has no value here"},
      {"$BY_HOST/x", "$NONE has no value here"},
      {"$BY_RANK/x", "the value of $RANK is not the same everywhere"},
      {"$BY_TEMP/x", "the value of $AZ_BATCHAI_JOB_TEMP is not the same everywhere"},
      {"$RANK/x", "$RANK has another value on each rank"},
      {"$AZ_BATCHAI_JOB_TEMP/x", "$AZ_BATCHAI_JOB_TEMP has no value yet"},
      {"$HERE/x", "is 'here/x' here, which is no absolute path"},
      {"$CIRCLE/x", "$CIRCLE has no value here"},
      {"$V40/x", "longer than a path may be"},
      {"$W40/x", "name too many others"},
  };
  std::string variables =
      R"("environment": {"BY_HOST": "$NONE", "BY_RANK": "/r/$RANK", "CIRCLE": "$CIRCLE",
         "BY_TEMP": "$AZ_BATCHAI_JOB_TEMP", "V0": "/vvvvvvvv", "W0": "")";
  for (int i = 1; i <= 40; ++i) {
    for (const char* name : {"V", "W"}) {
      const std::string last = std::string("$") + name + std::to_string(i - 1);
      variables += ", \"" + (name + std::to_string(i)) + "\": \"" + last + last + "\"";
    }
  }
  for (const Wrong& wrong : kWrong) {
    const std::string path = std::string("\"") + wrong.path + "\"";
    for (const std::string& where :
         {"\"outputs\": {\"M\": " + path + "}", "\"logs\": {\"path\": " + path + "}"}) {
      EXPECT_THAT(refusal_of_job(modern_job(variables + "},\n" + where), scratch_settings()),
                  AllOf(HasSubstr("job.json:3:"), HasSubstr(wrong.says)))
          << where;
    }
  }
}

TEST(Places, OfAJobThatIsNotToRunStayAsTheyAre) {
  JobFileSettings settings = scratch_settings();
  settings.is_complete = false;
  const JobSpec spec = parsed(modern_job(kPlaces), settings);
  EXPECT_EQ(spec.outputs[0].path, "$USER_DIR//r/../s");
  EXPECT_EQ(spec.logs.path, "$SCRATCH/logs");
  const std::string text = modern_text(spec);
  EXPECT_EQ(meaning_of(parsed(text, scratch_settings())),
            meaning_of(parsed(modern_job(R"("name": "job", )" + std::string(kPlaces)),
                              scratch_settings())));
}

TEST(Places, OfTheOldFormMeanTheSameInTheModernOne) {
  const std::string old = batch_ai_job(
      R"("environmentVariables": [{"name": "WHO", "value": "me"}],
         "inputDirectories": [{"id": "D", "path": "$TMPDIR/d"}],
         "outputDirectories": [{"id": "M", "pathPrefix": "$SCRATCH/$WHO", "pathSuffix": "m"}])");
  JobFileSettings settings = scratch_settings();
  const JobSpec spec = parsed(old, settings);
  EXPECT_EQ(places_of(spec, "/s", "7").outputs.front().path, "/scratch/me/jobs/job/7/m");
  settings.is_complete = false;
  EXPECT_EQ(meaning_of(parsed(modern_text(parsed(old, settings)), scratch_settings())),
            meaning_of(spec));
}

TEST(Places, SecretsHaveNoPlaceInPathsAndCommandLines) {
  const std::string secret = R"("secrets": {"TOKEN_OF_LAUNCHER": null},
    "environment": {"URL": "https://$TOKEN_OF_LAUNCHER@h", "PAGE": "${URL}/x"}, )";
  const auto said_of = [&](const std::string& more) {
    return refusal_of_job(R"({"chainmail": 1, )" + secret + more + "}", scratch_settings());
  };
  const char* const kInSight[] = {
      R"("program": ["./t", "--token", "$TOKEN_OF_LAUNCHER"])",
      R"("program": ["./t", "--page=$PAGE"])",
      R"("program": ["t"], "directory": "/x/${URL}")",
      R"("program": ["t"], "outputs": {"M": "/x/$URL"})",
      R"("program": ["t"], "inputs": {"M": "/x/$TOKEN_OF_LAUNCHER"})",
      R"("program": ["t"], "logs": {"path": "$TOKEN_OF_LAUNCHER"})",
      R"("program": ["/bin/sh", "-c", "t --token $TOKEN_OF_LAUNCHER"])",
  };
  for (const char* more : kInSight) {
    EXPECT_THAT(said_of(more), AllOf(HasSubstr("the secret TOKEN_OF_LAUNCHER would be seen"),
                                     Not(HasSubstr("t0ken"))))
        << more;
  }
  EXPECT_EQ(said_of(R"("program": ["/bin/sh", "-c", "echo $$TOKEN_OF_LAUNCHER | login"],
                       "prepare": {"command": "echo $TOKEN_OF_LAUNCHER | login"})"),
            "");
}

Options options_of(const JobSpec& spec, const std::vector<std::string>& typed = {}) {
  std::vector<std::string> words = {"--job", "job.json"};
  words.insert(words.end(), typed.begin(), typed.end());
  return job_options(spec, words);
}

std::string start_refusal(const std::string& members, const std::vector<std::string>& typed = {}) {
  try {
    (void)options_of(parsed(modern_job(members), scratch_settings()), typed);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Places, TypedDirectoriesMeanWhatTheySay) {
  const JobSpec spec = parsed(modern_job(R"("directory": "$HOME/x")"), scratch_settings());
  EXPECT_EQ(options_of(spec).working_directory, "$HOME/x");
  EXPECT_EQ(options_of(spec, {"--wdir", "/a$b"}).working_directory, "/a$$b");
}

TEST(Places, OfAContainerAreMountedWhereTheyAreOnEachHost) {
  const std::string members =
      R"("container": {"engine": "podman", "image": "i", "shm_size": "64MB", "mounts": ["a:/b"]},
         "directory": "d$$", "outputs": {"M": "/o"})";
  const auto mounts_of = [&](const std::string& more) {
    const JobSpec spec = parsed(modern_job(members + more), scratch_settings());
    return container_of(spec, places_of(spec, "/state/job", "7"), "7",
                        options_of(spec).working_directory);
  };
  const Container without_logs = mounts_of("");
  EXPECT_THAT(without_logs.mounts,
              ::testing::ElementsAre("/work/jobs/a:/b", "/work/jobs/d$:/work/jobs/d$",
                                     "/o/jobs/job/7:/o/jobs/job/7"));
  EXPECT_EQ(without_logs.shm_size, "64m");
  EXPECT_THAT(mounts_of(R"(, "logs": {"path": "/l"})").mounts,
              ::testing::Contains("/l/jobs/job/7:/l/jobs/job/7"));
}

TEST(Places, ThatNoContainerCanMountAreRefusedBeforeTheStart) {
  const std::string podman = R"("container": {"engine": "podman", "image": "i"}, )";
  const std::string apptainer = R"("container": {"engine": "apptainer", "image": "i"}, )";
  EXPECT_THAT(start_refusal(podman + R"("inputs": {"D": "/a:b"})"), HasSubstr("/a:b"));
  EXPECT_THAT(start_refusal(podman + R"("directory": "/a:b")"), HasSubstr("/a:b"));
  EXPECT_THAT(start_refusal(apptainer + R"("inputs": {"D": "/a,b"})"), HasSubstr("the ','"));
  EXPECT_THAT(start_refusal(podman + R"("inputs": {"D": "/a,b"})"), IsEmpty());
  EXPECT_THAT(start_refusal(R"("inputs": {"D": "/a:b"})"), IsEmpty());
}

TEST(Places, OfHostsThatComeAndGoAreNotNamed) {
  const std::string elastic = R"("elastic": {"min": 1, "max": 2}, )";
  EXPECT_THAT(start_refusal(elastic + R"("environment": {"A": "$AZ_BATCHAI_MPI_HOST_FILE"})"),
              HasSubstr("an elastic job has no $AZ_BATCHAI_MPI_HOST_FILE"));
  EXPECT_THAT(start_refusal(elastic + R"("prepare": {"command": "ls $AZ_BATCHAI_STDOUTERR_DIR"})"),
              HasSubstr("logs.path would give it one"));
  EXPECT_THAT(start_refusal(R"("prepare": {"command": "ls $AZ_BATCHAI_SHARED_JOB_TEMP"})",
                            {"--elastic", "1:2"}),
              HasSubstr("has no $AZ_BATCHAI_SHARED_JOB_TEMP"));
  EXPECT_THAT(start_refusal(elastic + R"("prepare": {"command": "ls $AZ_BATCHAI_STDOUTERR_DIR"},
                                         "logs": {"path": "/l"})"),
              IsEmpty());
  const JobSpec spec = parsed(modern_job(elastic + R"("inputs": {"D": "/d"})"));
  Options options = options_of(spec);
  complete_for_hosts(spec, places_of(spec, "/s", "7"), {}, options);
  EXPECT_THAT(options.preparation.words, ::testing::Contains(HasSubstr("cm_input D")));
  EXPECT_THAT(options.preparation.first_words, IsEmpty());
}

}  // namespace
}  // namespace chainmail::launch
