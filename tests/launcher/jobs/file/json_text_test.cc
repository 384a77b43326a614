// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where everything in a JSON text stands, and what is said of one that is none.

#include "launcher/jobs/file/text/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string place_of(TextPlace place) {
  return std::to_string(place.line) + ":" + std::to_string(place.column);
}

// "LINE:COLUMN POINTER MESSAGE" of the first problem.
std::string problem_of(std::string_view text) {
  const JsonText json = parse_json_text(text);
  if (json.problems.empty()) return "";
  const JsonProblem& problem = json.problems.front();
  return place_of(problem.place) + " " + problem.pointer + " " + problem.message;
}

TEST(JsonText, EveryKeyAndValueHasItsPlace) {
  const JsonText json = parse_json_text(
      "// first\n{ \"a\": 1, /* two\n lines */ \"b\" : [true, null,\n  \"x,:\\\"y\" ],\n"
      "\t\"c\":{}}\n");
  ASSERT_THAT(json.problems, IsEmpty());
  const auto& members = json.root.members;
  ASSERT_THAT(members, SizeIs(3));
  EXPECT_EQ(place_of(json.root.place), "2:1");
  EXPECT_EQ(place_of(members[0].place), "2:3");
  EXPECT_EQ(place_of(members[0].value.place), "2:8");
  EXPECT_EQ(members[0].value.text, "1");
  EXPECT_EQ(place_of(members[1].place), "3:11");
  const auto& items = members[1].value.items;
  ASSERT_THAT(items, SizeIs(3));
  EXPECT_TRUE(items[0].is_true);
  EXPECT_EQ(place_of(items[1].place), "3:24");
  EXPECT_EQ(place_of(items[2].place), "4:3");
  EXPECT_EQ(items[2].text, "x,:\"y");
  EXPECT_EQ(items[2].pointer, "/b/2");
  EXPECT_EQ(place_of(members[2].value.place), "5:6");
}

TEST(JsonText, ColumnsCountCharactersAndAMarkIsNone) {
  const JsonText json =
      parse_json_text("\xEF\xBB\xBF{\"\xC3\xA4\xE2\x82\xAC\": \"\xF0\x9F\x98\x80\"}");
  ASSERT_THAT(json.problems, IsEmpty());
  EXPECT_EQ(place_of(json.root.members[0].place), "1:2");
  EXPECT_EQ(place_of(json.root.members[0].value.place), "1:8");
}

TEST(JsonText, NumbersAsTheyAre) {
  const JsonText json = parse_json_text("[0, -12, 18446744073709551615, 1.50, 2e3]");
  ASSERT_THAT(json.root.items, SizeIs(5));
  EXPECT_EQ(json.root.items[1].text, "-12");
  EXPECT_EQ(json.root.items[2].text, "18446744073709551615");
  EXPECT_EQ(json.root.items[3].text, "1.50");
  EXPECT_EQ(json.root.items[4].text, "2e3");
}

TEST(JsonText, PointersAreEscaped) {
  const JsonText json = parse_json_text(R"({"a/b": {"c~d": 1}})");
  EXPECT_EQ(json.root.members[0].value.members[0].value.pointer, "/a~1b/c~0d");
}

TEST(JsonText, AnotherEndOfLineEndsAComment) {
  const JsonText json = parse_json_text("{ // a\r\"x\": 7 // b\r\n}");
  ASSERT_THAT(json.problems, IsEmpty());
  EXPECT_EQ(json.root.members[0].value.text, "7");
}

TEST(JsonText, SyntaxErrorsInPlainWords) {
  struct Broken {
    const char* text;
    const char* place;
    const char* says;
  };
  const Broken kBroken[] = {
      {"", "1:1 ", "nothing here"},
      {"  // only a comment", "1:20 ", "nothing here"},
      {"{\"a\": 1,}", "1:9 ", "',' before this '}'"},
      {"[1, 2,\n]", "2:1 ", "',' before this ']'"},
      {"{\"a\": 1\n \"b\": 2}", "2:2 ", "',' or '}' is missing before this"},
      {"[1 2]", "1:4 ", "',' or ']' is missing"},
      {"{\"a\" 1}", "1:6 ", "':' is missing"},
      {"{\"a\": }", "1:7 ", "a value is missing before this '}'"},
      {"{\"a\": , \"b\": 1}", "1:7 ", "a value is missing before this ','"},
      {"{a: 1}", "1:2 ", "a key in double quotes"},
      {"{'a': 1}", "1:2 ", "keys are in double quotes"},
      {"{\"a\": 'b'}", "1:7 ", "texts are in double quotes"},
      {"{\"a\": True}", "1:7 ", "no 'True' in JSON"},
      {"{\"a\": yes}", "1:7 ", "no 'yes' in JSON"},
      {"{\"a\": hello}", "1:7 ", "no value: texts are in double quotes"},
      {"{\"a\": 01}", "1:8 ", "',' or '}' is missing"},
      {"{\"a\": +1}", "1:7 ", "no number"},
      {"{\"a\": .5}", "1:7 ", "no number"},
      {"{\"a\": 1.}", "1:7 ", "no number"},
      {"{\"a\": 1e999}", "1:7 ", "no number"},
      {"{\"a\": {\n\"b\": [1, 2", "2:11 /a/b", "list that begins at 2:6 has no ']'"},
      {"{\"a\": 1", "1:8 ", "object that begins at 1:1 has no '}'"},
      {"{} {}", "1:4 ", "follows the end"},
      {"{\"a\": \"b\n\"}", "1:7 ", "no closing quote in its line"},
      {"{\"a\": \"b", "1:7 ", "no closing quote"},
      {"{\"a\": \"C:\\dir\"}", "1:11 ", "a backslash is written"},
      {"{\"a\": \"x\ty\"}", "1:9 ", "written \\t"},
      {"{\"a\": \"\\u12g4\"}", "1:12 ", "four hexadecimal digits"},
      {"{\"a\": \"\\ud800\"}", "1:14 ", "in pairs"},
      {"{\"a\": 1 /* open", "1:16 ", "has no '}'"},
      {"{\"a\": #1}", "1:7 ", "no value"},
  };
  for (const Broken& broken : kBroken) {
    EXPECT_THAT(problem_of(broken.text), ::testing::StartsWith(broken.place)) << broken.text;
    EXPECT_THAT(problem_of(broken.text), HasSubstr(broken.says)) << broken.text;
  }
}

TEST(JsonText, WhatIsNotUnderstoodIsNotRepeated) {
  for (const char* text : {"{\"a\": hunter2}", "{\"a\": 'hunter2'}", "{hunter2: 1}",
                           "{\"a\": \"hunter2", "{\"a\": \"hunter2\\q\"}", "[hunter2]"}) {
    EXPECT_THAT(problem_of(text), ::testing::Not(HasSubstr("hunter2"))) << text;
  }
}

TEST(JsonText, AKeyTwiceNamesBothPlaces) {
  const JsonText json = parse_json_text("{\"a\": 1,\n \"b\": {\"c\": 1, \"c\": 2}, \"a\": 3}");
  ASSERT_THAT(json.problems, SizeIs(2));
  EXPECT_EQ(place_of(json.problems[0].place), "2:16");
  EXPECT_EQ(json.problems[0].pointer, "/b/c");
  EXPECT_THAT(json.problems[0].message, HasSubstr("2:8"));
  EXPECT_EQ(place_of(json.problems[1].place), "2:25");
  EXPECT_THAT(json.problems[1].message, HasSubstr("1:2"));
}

TEST(JsonText, BytesThatAreNoText) {
  EXPECT_THAT(problem_of("{\n\"a\": \"\xff\"}"), HasSubstr("2:7  a byte that is not UTF-8"));
  for (const char* bytes : {"\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3",
                            "\x80", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_THAT(problem_of(std::string("\"") + bytes + "\""), HasSubstr("1:2  a byte")) << bytes;
  }
  EXPECT_THAT(problem_of(std::string_view("{ // \0\n}", 8)), HasSubstr("1:6  a byte"));
  EXPECT_THAT(problem_of(std::string_view("\xFF\xFE{\0}\0", 6)), HasSubstr("UTF-16"));
  EXPECT_THAT(problem_of(R"({"a": "x\u0000y"})"), HasSubstr("/a a text may not contain"));
}

TEST(JsonText, LongKeysAreNotKeptForEachValue) {
  const std::string key(100'000, 'k');
  std::string text;
  for (int i = 0; i < 8; ++i) text += "{\"" + key + "\": ";
  text += "[0";
  for (int i = 0; i < 30'000; ++i) text += ",0";
  const JsonText json = parse_json_text(text + "]" + std::string(8, '}'));
  ASSERT_THAT(json.problems, IsEmpty());
  const JsonNode* node = &json.root;
  while (node->kind == JsonNode::Kind::kObject) node = &node->members.front().value;
  EXPECT_THAT(node->items.back().pointer, ::testing::StartsWith("/kkk"));
  EXPECT_LT(node->items.back().pointer.size(), 2000U);
  EXPECT_THAT(pointer_to("/a", "b"), "/a/b");
  EXPECT_THAT(pointer_to("", std::string(200, 'k')),
              std::string("/") + std::string(100, 'k') + "...");
  EXPECT_THAT(pointer_to(std::string(2000, 'p'), "b"), ::testing::EndsWith("p/..."));
}

TEST(JsonText, DepthAndNumberOfValuesAreBounded) {
  const std::string deep(kMaxJsonDepth, '[');
  EXPECT_THAT(problem_of(deep + std::string(kMaxJsonDepth, ']')), IsEmpty());
  EXPECT_THAT(problem_of(deep + "["), HasSubstr("more than 64 levels"));
  EXPECT_THAT(problem_of(std::string(1000000, '[')), HasSubstr("1:65 "));
  std::string many = "[0";
  for (std::size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_THAT(problem_of(many + "]"), HasSubstr("more than 65536 values"));
}

}  // namespace
}  // namespace chainmail::launch
