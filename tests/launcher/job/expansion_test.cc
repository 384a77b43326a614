// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Patterns of job files, and the digest that tells one file from another.

#include "launcher/job/expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/files/sha256.h"
#include "launcher/job/nearest.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal_of_pattern(const std::string& pattern) {
  try {
    (void)names_in(pattern);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Expansion, NamesInOrder) {
  EXPECT_THAT(names_in("--out=$OUT/${A_1}x$B-$C.d"), ElementsAre("OUT", "A_1", "B", "C"));
  EXPECT_THAT(names_in("${input.DATA}/${output.2}$input.x"),
              ElementsAre("input.DATA", "output.2", "input"));
  EXPECT_THAT(names_in("no names, $$5 and $$$$"), IsEmpty());
  EXPECT_THAT(names_in("$$$A"), ElementsAre("A"));
  EXPECT_THAT(names_in(""), IsEmpty());
}

TEST(Expansion, WhatIsNoPatternIsRefusedWithItsPlace) {
  EXPECT_THAT(refusal_of_pattern("ab$"), HasSubstr("character 3"));
  EXPECT_THAT(refusal_of_pattern("$1"), HasSubstr("no name follows"));
  EXPECT_THAT(refusal_of_pattern("$(date)"), HasSubstr("run a command"));
  EXPECT_THAT(refusal_of_pattern("${A"), HasSubstr("no '}'"));
  for (const char* pattern : {"${}", "${A:-b}", "${1A}", "${in put}", "${input.}", "${other.A}",
                              "${input.a-b}", "${input.a.b}"}) {
    EXPECT_THAT(refusal_of_pattern(pattern), HasSubstr("'${...}'")) << pattern;
  }
}

TEST(Expansion, ValuesOfAnEnvironment) {
  const Environment variables = {{"A", "1"}, {"AB", "2"}, {"AZ_BATCHAI_INPUT_D", "/d"}};
  EXPECT_EQ(expanded("$A,${A}B,$AB,$NONE,$$A", variables), "1,1B,2,,$A");
  EXPECT_EQ(expanded("${input.D}/x${output.D}", variables), "/d/x");
  EXPECT_EQ(expanded("", variables), "");
  // Values are not patterns.
  EXPECT_EQ(expanded("$A", {{"A", "$B"}, {"B", "no"}}), "$B");
}

TEST(Expansion, WhatIsNoPatternStays) {
  for (const char* text : {"$", "a$", "$(x)", "${A", "${A:-b}", "$1$2", "100$ bill"}) {
    EXPECT_EQ(expanded(text, Environment()), text);
  }
}

TEST(Expansion, AnyTextHasAPattern) {
  for (const char* text : {"", "$", "$$", "$A ${B} $(c) $1", "plain", "a$$b$"}) {
    EXPECT_EQ(expanded(as_pattern(text), {{"A", "wrong"}, {"B", "wrong"}}), text);
    EXPECT_THAT(names_in(as_pattern(text)), IsEmpty());
  }
}

// FIPS 180-4's examples, and lengths about those of a block.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_of(std::string(55, 'x')),
            "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(sha256_of(std::string(64, '\xff')),
            "8667e718294e9e0df1d30600ba3eeb201f764aad2dad72748643e4a285e1d1f7");
}

TEST(Nearest, ATypoAndNothingForAStranger) {
  const std::vector<std::string> known = {"nodeCount", "hosts", "on"};
  EXPECT_EQ(nearest_of("nodeCont", known), "nodeCount");
  EXPECT_EQ(nearest_of("hsots", known), "hosts");
  EXPECT_EQ(nearest_of("no", known), "");
  EXPECT_EQ(nearest_of("something", known), "");
  EXPECT_EQ(nearest_of("", known), "");
}

}  // namespace
}  // namespace chainmail::launch
