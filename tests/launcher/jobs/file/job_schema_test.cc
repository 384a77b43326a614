// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The JSON Schema and the reader of the modern form know the same keys and types.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "launcher/job/text.h"
#include "tests/launcher/jobs/file/job_file_tools.h"

namespace chainmail::launch {
namespace {

using namespace testing_jobs;
using Schema = nlohmann::json;

// The words of JSON Schema that ours uses, and no other.
class SchemaCheck {
 public:
  explicit SchemaCheck(const Schema& root) : root_(root) {}

  // Why it is not valid; empty: it is.
  std::string check(const Schema& schema, const Schema& value) const {
    static const std::set<std::string> kWords = {"$schema",
                                                 "$ref",
                                                 "$defs",
                                                 "title",
                                                 "description",
                                                 "type",
                                                 "const",
                                                 "enum",
                                                 "pattern",
                                                 "minLength",
                                                 "minimum",
                                                 "maximum",
                                                 "minItems",
                                                 "items",
                                                 "properties",
                                                 "required",
                                                 "additionalProperties",
                                                 "propertyNames",
                                                 "dependentRequired",
                                                 "oneOf"};
    for (const auto& [word, rule] : schema.items()) {
      if (!kWords.contains(word)) return "unknown word " + word;
      const std::string problem = check_word(word, rule, schema, value);
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  std::string check_word(const std::string& word, const Schema& rule, const Schema& schema,
                         const Schema& value) const {
    if (word == "$ref")
      return check(root_.at(Schema::json_pointer(rule.get<std::string>().substr(1))), value);
    if (word == "type") return has_type(rule, value) ? "" : "type";
    if (word == "const") return rule == value ? "" : word;
    if (word == "enum") return std::count(rule.begin(), rule.end(), value) == 1 ? "" : word;
    if (word == "oneOf") {
      const auto count = std::count_if(
          rule.begin(), rule.end(), [&](const Schema& one) { return check(one, value).empty(); });
      return count == 1 ? "" : word;
    }
    if (value.is_string()) return check_text(word, rule, value.get<std::string>());
    if (value.is_number()) {
      if (word == "minimum" && value < rule) return word;
      if (word == "maximum" && value > rule) return word;
    }
    if (value.is_array()) return check_list(word, rule, value);
    return value.is_object() ? check_object(word, rule, schema, value) : "";
  }

  static bool has_type(const Schema& rule, const Schema& value) {
    if (rule.is_array()) {
      return std::any_of(rule.begin(), rule.end(),
                         [&](const Schema& one) { return has_type(one, value); });
    }
    const std::string type = rule.get<std::string>();
    if (type == "integer") return value.is_number_integer();
    return type == (value.is_number() ? "number" : std::string(value.type_name()));
  }

  static std::string check_text(const std::string& word, const Schema& rule,
                                const std::string& text) {
    if (word == "minLength" && text.size() < rule) return word;
    if (word == "pattern" && !std::regex_search(text, std::regex(rule.get<std::string>()))) {
      return word;
    }
    return "";
  }

  std::string check_list(const std::string& word, const Schema& rule, const Schema& list) const {
    if (word == "minItems" && list.size() < rule) return word;
    for (const Schema& item : word == "items" ? list : Schema::array()) {
      if (const std::string problem = check(rule, item); !problem.empty()) return problem;
    }
    return "";
  }

  std::string check_object(const std::string& word, const Schema& rule, const Schema& schema,
                           const Schema& object) const {
    if (word == "required") {
      for (const Schema& key : rule) {
        if (!object.contains(key.get<std::string>())) return word;
      }
    }
    if (word == "dependentRequired" && object.contains("idle") && !object.contains("resize")) {
      return word;
    }
    for (const auto& [key, value] : object.items()) {
      std::string problem;
      const bool is_known = schema.contains("properties") && schema["properties"].contains(key);
      if (word == "propertyNames") problem = check(rule, Schema(key));
      if (word == "properties" && is_known) problem = check(rule[key], value);
      if (word == "additionalProperties" && !is_known) {
        problem = rule.is_boolean() ? word : check(rule, value);
      }
      if (!problem.empty()) return key + ": " + problem;
    }
    return "";
  }

  const Schema& root_;
};

std::string schema_refusal(const std::string& text) {
  const Schema schema = Schema::parse(job_schema());
  return SchemaCheck(schema).check(schema, Schema::parse(text, nullptr, true, true));
}

TEST(JobSchema, AgreesWithTheReader) {
  struct Sample {
    const char* members;
    bool is_good;
  };
  const Sample kSamples[] = {
      {"", true},
      {R"("$schema": "x")", true},
      {R"("name": "a.b-c_1", "ranks": 2, "per_node": 1)", true},
      {R"("name": "-a")", false},
      {R"("name": "")", false},
      {R"("name": 5)", false},
      {R"("ranks": 0)", false},
      {R"("ranks": 65537)", false},
      {R"("ranks": 1.5)", false},
      {R"("ranks": "1")", false},
      {R"("program": "p")", false},
      {R"("hosts": {"from": "h:2", "count": 1, "wait": "1.5h", "resize": ["r"], "idle": 5})", true},
      {R"("hosts": {"idle": 5})", false},
      {R"("hosts": {"resize": []})", false},
      {R"("hosts": {"wait": "1w"})", false},
      {R"("hosts": {"wait": "1h30m"})", false},
      {R"("hosts": {"from": ""})", false},
      {R"("hosts": {"x": 1})", false},
      {R"("directory": "d", "environment": {"A": "x", "HOME": null})", true},
      {R"("directory": "")", false},
      {R"("environment": {"A": 1})", false},
      {R"("environment": {"1A": "x"})", false},
      {R"("secrets": {"A": "x", "TOKEN_OF_LAUNCHER": null, "C": {"file": "/dev/null"}})", true},
      {R"("secrets": {"A": {"file": 1}})", false},
      {R"("secrets": {"A": {"value": "x"}})", false},
      {R"("inputs": {"A": "/x"}, "outputs": {"B": "y", "C": {"path": "z", "suffix": "s"}})", true},
      {R"("inputs": {"A": {"path": "/x"}})", false},
      {R"("inputs": {"a b": "/x"})", false},
      {R"("outputs": {"A": {"suffix": "s"}})", false},
      {R"("outputs": {"A": {"path": "s", "x": 1}})", false},
      {R"("mounts": {"a": "/", "b/c": "/"})", true},
      {R"("mounts": {"/a": "/"})", false},
      {R"("mounts": {"a": 1})", false},
      {R"("prepare": {"command": "c", "timeout": 1.5})", true},
      {R"("prepare": {"timeout": 1})", false},
      {R"("prepare": "c")", false},
      {R"("container": {"engine": "docker", "image": "i", "mounts": ["a:/b:rw"], "gpus": "0,1"})",
       true},
      {R"("container": {"engine": "docker", "image": "i", "gpus": "two"})", false},
      {R"("container": {"engine": "docker", "image": "i", "shm_size": "8gib"})", false},
      {R"("container": {"engine": "docker", "image": "i", "shm_size": "64MB"})", true},
      {R"("container": {"engine": "docker", "image": "-i"})", false},
      {R"("container": {"engine": "lxc", "image": "i"})", false},
      {R"("container": {"image": "i"})", false},
      {R"("container": {"engine": "docker", "image": "i", "mounts": ["a:b"]})", false},
      {R"("limits": {"time": 0, "stall": "5m", "grace": "250ms"})", true},
      {R"("limits": {"time": -1})", false},
      {R"("limits": {"time": 1e3, "stall": 1.5e-1})", true},
      {R"("limits": {"time": 1e9})", false},
      {R"("limits": {"time": 31536001})", false},
      {R"("limits": {"time": true})", false},
      {R"("retry": {"failures": 0, "losses": 1, "exit_codes": [1, 255], "wait": "1s"})", true},
      {R"("retry": {"exit_codes": [256]})", false},
      {R"("retry": {"losses": -1})", false},
      {R"("elastic": {"min": 1, "max": 2})", true},
      {R"("elastic": {"min": 1})", false},
      {R"("logs": {"path": "l", "tag": false})", true},
      {R"("logs": {"tag": "yes"})", false},
      {R"("options": {"bind-to": "core", "encrypt": true, "shards": 2})", true},
      {R"("options": {"encrypt": false})", false},
      {R"("options": {"bind-to": null})", false},
      {R"("options": {"bind-to": ["core"]})", false},
      {R"("nodeCount": 2)", false},
  };
  for (const Sample& sample : kSamples) {
    const std::string members(sample.members);
    const std::string text = members.starts_with("\"program\"")
                                 ? "{\"chainmail\": 1, " + members + "}"
                                 : modern_job(members);
    EXPECT_EQ(refusal_of_job(text).empty(), sample.is_good) << text << refusal_of_job(text);
    EXPECT_EQ(schema_refusal(text).empty(), sample.is_good) << text << schema_refusal(text);
  }
}

TEST(JobSchema, TheExampleIsValid) {
  const std::string text = text_of_file(CHAINMAIL_JOB_EXAMPLES "/mnist.json");
  EXPECT_EQ(schema_refusal(text), "");
  EXPECT_EQ(refusal_of_job(text), "");
}

// The reader's list stands in what it says of a key that it does not know.
std::set<std::string> keys_of_reader(const std::string& job) {
  const std::string said = refusal_of_job(job);
  const std::string begin = "unknown key; known here are ";
  const std::size_t at = said.find(begin);
  std::set<std::string> keys;
  if (at == std::string::npos) return keys;
  const std::size_t end = said.find('\n', at);
  for (const std::string& key :
       split(said.substr(at + begin.size(), end - at - begin.size()), ',')) {
    keys.insert(key.substr(key.find_first_not_of(' ')));
  }
  return keys;
}

std::set<std::string> keys_of_schema(const Schema& schema) {
  std::set<std::string> keys;
  for (const auto& [key, rule] : schema.at("properties").items()) keys.insert(key);
  return keys;
}

TEST(JobSchema, HasTheReadersKeysAndNoOthers) {
  const Schema schema = Schema::parse(job_schema());
  EXPECT_EQ(keys_of_schema(schema), keys_of_reader(modern_job("\"zzzzzzzz\": 1")));
  int objects = 0;
  for (const auto& [key, rule] : schema["properties"].items()) {
    if (!rule.contains("properties")) continue;
    ++objects;
    EXPECT_EQ(keys_of_schema(rule),
              keys_of_reader(modern_job("\"" + key + "\": {\"zzzzzzzz\": 1}")))
        << key;
  }
  EXPECT_EQ(objects, 7);
  const Schema& folder = schema["properties"]["outputs"]["additionalProperties"]["oneOf"][1];
  EXPECT_EQ(keys_of_schema(folder),
            keys_of_reader(modern_job(R"("outputs": {"A": {"zzzzzzzz": 1}})")));
  const Schema& secret = schema["properties"]["secrets"]["additionalProperties"]["oneOf"][1];
  EXPECT_EQ(keys_of_schema(secret),
            keys_of_reader(modern_job(R"("secrets": {"A": {"zzzzzzzz": 1}})")));
}

}  // namespace
}  // namespace chainmail::launch
