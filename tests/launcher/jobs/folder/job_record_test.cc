// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// state.json: what is written comes back, and what is none is refused.

#include "launcher/jobs/folder/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobRecord full_record() {
  JobRecord record;
  record.id = "my-job.1-abc234";
  record.uuid = "01234567-89ab-4cde-8f01-23456789abcd";
  record.name = "my-job.1";
  record.phase = JobPhase::kStopping;
  record.reason = "somebody \"asked\"\n\x1b[2J";
  record.exit_code = -1;
  record.attempt = 2;
  record.losses = 3;
  record.failures = 4;
  record.created_ms = 1'700'000'000'123;
  record.started_ms = 1'700'000'001'000;
  record.ended_ms = 1'700'000'002'000;
  record.grace_ms = 30'000;
  record.launcher = {"n1.example.org", "boot", 4711, ~std::uint64_t{0}};
  record.ranks = 8;
  record.hosts = {{"n1", 4, "used"}, {"n2", 4, "lost"}};
  record.inputs = {{"DATA", "/data/m\xc3\xbcller"}};
  record.outputs = {{"MODEL", "/shared/x"}, {"LOG", ""}};
  record.stdouterr = "/shared/logs";
  record.image = "image@sha256:00";
  record.warnings = {"one", "two"};
  return record;
}

std::string changed(const std::string& what, const std::string& with) {
  std::string text = json_of(full_record());
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

std::string refusal_of_record(const std::string& json) {
  try {
    (void)record_of(json);
    return "";
  } catch (const SystemError& error) {
    return error.what();
  }
}

TEST(JobRecord, ComesBackAsItWas) {
  const JobRecord record = record_of(json_of(full_record()));
  EXPECT_EQ(json_of(record), json_of(full_record()));
  EXPECT_EQ(record.reason, full_record().reason);
  EXPECT_EQ(record.launcher.start_time, ~std::uint64_t{0});
  EXPECT_EQ(record.inputs.at(0).path, "/data/m\xc3\xbcller");
  EXPECT_EQ(record.exit_code, -1);
  JobRecord unfinished = full_record();
  unfinished.exit_code.reset();
  EXPECT_EQ(record_of(json_of(unfinished)).exit_code, std::nullopt);
}

TEST(JobRecord, CommandsNoTerminal) {
  JobRecord record = full_record();
  record.reason = "\x1b\x7f\xc2\x9b\xff";
  const std::string text = json_of(record);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7f)) << text;
  EXPECT_NO_THROW((void)record_of(text));
}

TEST(JobRecord, HasPhasesThatAreFinal) {
  for (const auto& [phase, ended] : {std::pair{JobPhase::kQueued, false},
                                     {JobPhase::kPreparing, false},
                                     {JobPhase::kRunning, false},
                                     {JobPhase::kRetrying, false},
                                     {JobPhase::kStopping, false},
                                     {JobPhase::kSucceeded, true},
                                     {JobPhase::kFailed, true},
                                     {JobPhase::kStopped, true},
                                     {JobPhase::kLost, true}}) {
    EXPECT_EQ(is_ended(phase), ended) << to_string(phase);
    JobRecord record = full_record();
    record.phase = phase;
    EXPECT_EQ(record_of(json_of(record)).phase, phase);
  }
}

TEST(JobRecord, NewerLaunchersMayAddKeys) {
  const JobRecord record = record_of(
      R"({"version": 1, "more": [], "id": "a-234567", "name": "a", "state": "failed", "uuid": null})");
  EXPECT_EQ(record.id, "a-234567");
  EXPECT_EQ(record.attempt, 0U);
  EXPECT_THAT(refusal_of_record(changed("\"version\": 1", "\"version\": 2")),
              HasSubstr("version is 2"));
}

TEST(JobRecord, RefusesWhatIsNone) {
  const std::string text = json_of(full_record());
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_NE(refusal_of_record(text.substr(0, size)), "") << size;
  }
  for (const char* none : {"", "null", "[]", "{}", "1", "{\"version\": 1}", "\xff"}) {
    EXPECT_NE(refusal_of_record(none), "") << none;
  }
  EXPECT_NE(refusal_of_record(std::string(100'000, '[')), "");
  for (const auto& [what, with] :
       {std::pair<std::string, std::string>{"\"ranks\": 8", "\"ranks\": -8"},
        {"\"ranks\": 8", "\"ranks\": 4294967296"},
        {"\"ranks\": 8", "\"ranks\": 8.5"},
        {"\"ranks\": 8", "\"ranks\": \"8\""},
        {"\"pid\": 4711", "\"pid\": 99999999999999999999"},
        {"\"exit_code\": -1", "\"exit_code\": 99999999999"},
        {"\"stopping\"", "\"sleeping\""},
        {"\"my-job.1-abc234\"", "\"my-job.1-abc230\""},
        {"\"my-job.1-abc234\"", "\"../../abc-abc234\""},
        {"\"my-job.1\"", "\"another\""},
        {"01234567-", "01234567_"},
        {"\"one\"", "1"},
        {"\"stdouterr\": \"/shared/logs\"", "\"stdouterr\": []"}}) {
    EXPECT_NE(refusal_of_record(changed(what, with)), "") << with;
  }
}

TEST(JobRecord, IdsAndNames) {
  EXPECT_TRUE(is_job_id("a-abc234"));
  EXPECT_TRUE(is_job_id("a-b-c.d_E-zzzzzz"));
  for (const char* none : {"", "-abc234", "abc234", "a-abc23", "a-abc2345", "a-ABC234", "a-abc23l",
                           "a-abc230", ".a-abc234", "-a-abc234", "a/b-abc234", "a b-abc234"}) {
    EXPECT_FALSE(is_job_id(none)) << none;
  }
  EXPECT_EQ(job_name_of("a-b-abc234"), "a-b");
  EXPECT_EQ(job_name_of("abc"), "");
  EXPECT_TRUE(is_job_name(std::string(64, 'x')));
  EXPECT_FALSE(is_job_name(std::string(65, 'x')));
  EXPECT_TRUE(is_uuid("01234567-89ab-4cde-8f01-23456789abcd"));
  for (const char* none :
       {"", "01234567-89ab-4cde-8f01-23456789abcD", "0123456789ab-4cde-8f01-23456789abcd-",
        "01234567-89ab-4cde-8f01-23456789abcd "}) {
    EXPECT_FALSE(is_uuid(none)) << none;
  }
}

}  // namespace
}  // namespace chainmail::launch
