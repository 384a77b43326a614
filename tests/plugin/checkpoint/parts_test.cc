// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors in parts: names of ranges, what makes a tensor complete, manifests that name them, and
// files that are read entry by entry.

#include "plugin/checkpoint/store/parts.h"

#include <chainmail/checkpoint_error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/bytes.h"
#include "tests/plugin/checkpoint/faulty_file_system.h"
#include "tests/plugin/checkpoint/one_rank_save.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::ScratchFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

TEST(Parts, NamesOfRangesAreReadAgain) {
  const auto range = parse_range(range_name({"a [1:2)/b", 5, 18446744073709551615U}));
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->tensor, "a [1:2)/b");
  EXPECT_EQ(range->begin, 5U);
  EXPECT_EQ(range->end, 18446744073709551615U);
  for (const char* const name : {"", "a", "a[1:2]", "a[1:2", "a[1,2)", "a[:2)", "a[1:)", "a[2:2)",
                                 "a[3:2)", "a[-1:2)", "a[1:18446744073709551616)", "a[1:2) "}) {
    EXPECT_FALSE(parse_range(name).has_value()) << name;
  }
}

struct Piece {
  std::uint64_t begin;
  std::uint64_t end;
  EntryType type = EntryType::kFloat32;
};

PartIndex part(const std::string& file, const std::vector<Piece>& pieces) {
  PartIndex made{file, {}};
  for (const Piece& piece : pieces) {
    made.index.entries.push_back({.name = range_name({"o/x", piece.begin, piece.end}),
                                  .type = piece.type,
                                  .shape = {piece.end - piece.begin}});
  }
  return made;
}

std::string problem_of(const std::vector<PartIndex>& parts) {
  const std::vector<ManifestTensor> tensors = {{0, 10, "o/x"}, {1, 99, "of another set"}};
  return message_of([&] { check_tiles(tensors, 0, parts); });
}

// Row B13: gaps and overlaps, by name.
TEST(Parts, TheyTileTheirTensorsExactlyOnce) {
  EXPECT_EQ(problem_of({part("p0", {{0, 4}, {4, 6}}), part("p1", {{6, 10}})}), "");
  EXPECT_EQ(problem_of({part("p1", {{6, 10}}), part("p0", {{4, 6}, {0, 4}})}), "");
  EXPECT_THAT(problem_of({part("p0", {{0, 4}}), part("p1", {{6, 10}})}),
              AllOf(HasSubstr("elements 4 to 6 of 'o/x'"), HasSubstr("'o/x[6:10)' in p1")));
  EXPECT_THAT(problem_of({part("p0", {{1, 10}})}), HasSubstr("elements 0 to 1 of 'o/x'"));
  EXPECT_THAT(problem_of({part("p0", {{0, 4}})}), HasSubstr("elements 4 to 10 of 'o/x'"));
  EXPECT_THAT(problem_of({}), HasSubstr("elements 0 to 10 of 'o/x'"));
  EXPECT_THAT(problem_of({part("p0", {{0, 7}}), part("p1", {{6, 10}})}),
              HasSubstr("'o/x[6:10)' in p1 overlaps 'o/x[0:7)' in p0"));
  EXPECT_THAT(problem_of({part("p0", {{0, 10}}), part("p1", {{0, 10}})}),
              HasSubstr("'o/x[0:10)' in p1 overlaps 'o/x[0:10)' in p0"));
  EXPECT_THAT(problem_of({part("p0", {{0, 11}})}),
              HasSubstr("'o/x[0:11)' in p0 ends behind the tensor's 10 elements"));
  EXPECT_THAT(problem_of({part("p0", {{0, 4}}), part("p1", {{4, 10, EntryType::kFloat64}})}),
              HasSubstr("'o/x[0:4)' in p0 and 'o/x[4:10)' in p1 are of different types"));
}

TEST(Parts, NothingElseIsInTheirFiles) {
  PartIndex unknown = part("p0", {{0, 10}});
  unknown.index.entries.push_back({.name = "o/y[0:3)", .type = EntryType::kInt8, .shape = {3}});
  EXPECT_THAT(problem_of({unknown}), HasSubstr("p0: 'o/y[0:3)' is of no tensor"));
  PartIndex whole = part("p0", {{0, 10}});
  whole.index.entries.push_back({.name = "o/y", .type = EntryType::kInt8, .shape = {3}});
  EXPECT_THAT(problem_of({whole}), HasSubstr("p0: 'o/y' is no range of a tensor"));
  PartIndex short_one = part("p0", {{0, 10}});
  short_one.index.entries[0].shape = {9};
  EXPECT_THAT(problem_of({short_one}), HasSubstr("'o/x[0:10)' is no range"));
  PartIndex long_one = part("p0", {{0, 10}});
  long_one.index.entries[0].bytes = kMaxRangeBytes + 1;
  EXPECT_THAT(problem_of({long_one}), HasSubstr("'o/x[0:10)' has 4194305 bytes"));
}

TEST(Parts, AgreeOnWhatTheyShare) {
  const auto count = [](std::uint64_t begin, std::uint64_t end, std::uint64_t digest) {
    return FileEntry{.name = range_name({"o/step", begin, end}),
                     .type = EntryType::kInt64,
                     .digest = {digest, 0}};
  };
  const std::vector<ManifestTensor> tensors = {{0, 10, "o/step"}};
  std::vector<PartIndex> parts = {{"p0", {.entries = {count(0, 4, 7)}}},
                                  {"p1", {.entries = {count(4, 10, 7)}}}};
  EXPECT_NO_THROW(check_tiles(tensors, 0, parts));
  parts[1].index.entries[0].digest.low = 8;
  EXPECT_THAT(message_of([&] { check_tiles(tensors, 0, parts); }),
              HasSubstr("'o/step[0:4)' in p0 and 'o/step[4:10)' in p1 have different values"));
}

// A file whose digests are right may still be of any length.
TEST(Parts, ALongRangeIsRefusedBeforeItIsRead) {
  const ScratchFolder scratch;
  constexpr std::uint64_t kBytes = kMaxRangeBytes + 1;
  FileImage image;
  image.begin(
      {{.name = range_name({"o/x", 0, kBytes}), .type = EntryType::kInt8, .shape = {kBytes}}});
  Generation generation;
  generation.folder = scratch.path() + "/" + generation_name(1);
  prepare_generation(*posix_file_system(), scratch.path(), 1);
  const ManifestFile file =
      write_generation_file(*posix_file_system(), scratch.path(), 1, "set-0.part-0.bin", image);
  std::filesystem::rename(generation.folder + ".tmp", generation.folder);
  PartReader reader(generation, file);
  EXPECT_THAT(message_of([&] { (void)reader.read(0); }),
              HasSubstr("set-0.part-0.bin: 'o/x[0:4194305)' has 4194305 bytes"));
}

Manifest manifest_with_parts() {
  return {.iteration = 7,
          .id = 0xabc,
          .world_size = 2,
          .set_count = 1,
          .files = {{"set-0.bin", 128, {1, 2}, true},
                    {"set-0.part-0.bin", 256, {3, 4}, true},
                    {"set-0.part-1.bin", 256, {5, 6}, false}},
          .tensors = {{0, 10, "o/group 0/parameter 0/step"}, {0, 10, "o/x"}}};
}

TEST(PartsManifest, IsOfVersionTwoAndReadAgain) {
  const Manifest manifest = manifest_with_parts();
  const std::string text = print_manifest(manifest);
  EXPECT_THAT(text, AllOf(HasSubstr("chainmail-checkpoint 2\niteration 7\n"),
                          HasSubstr("\ntensor 0 10 o/group 0/parameter 0/step\n")));
  const Manifest read = parse_manifest(text, "m");
  EXPECT_EQ(read.tensors, manifest.tensors);
  EXPECT_EQ(read.files.at(2).name, "set-0.part-1.bin");
}

// What has no parts is as it was before there were any, byte for byte.
TEST(PartsManifest, IsOfVersionOneWithoutParts) {
  Manifest manifest = manifest_with_parts();
  manifest.files.resize(1);
  manifest.tensors.clear();
  EXPECT_THAT(print_manifest(manifest),
              ::testing::StartsWith("chainmail-checkpoint 1\niteration 7\nid 0000000000000abc\n"
                                    "world 2\nsets 1\nfile here set-0.bin 128 "
                                    "00000000000000020000000000000001\ndigest "));
}

std::string with_digest(const std::string& body) {
  return body + "digest " + to_hex(entry_digest(std::as_bytes(std::span(body)))) + '\n';
}

std::string refusal_of(const std::function<void(std::string&)>& change) {
  std::string text = print_manifest(manifest_with_parts());
  text.resize(text.rfind("digest "));
  change(text);
  return message_of([&] { (void)parse_manifest(with_digest(text), "m"); });
}

TEST(PartsManifest, OthersAreRefusedByName) {
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string& text) { text.replace(text.find(from), from.size(), to); };
  };
  EXPECT_EQ(refusal_of([](std::string&) {}), "");
  EXPECT_THAT(refusal_of(replace("checkpoint 2", "checkpoint 3")),
              HasSubstr("manifest: format version 3, this build reads 1 and 2"));
  EXPECT_THAT(refusal_of(replace("checkpoint 2", "checkpoint 1")), HasSubstr("not as this build"));
  EXPECT_THAT(refusal_of(replace("part-1", "part-2")), HasSubstr("'set-0.part-2.bin' is not exp"));
  EXPECT_THAT(refusal_of(replace("part-1", "part-0")), HasSubstr("or there twice"));
  EXPECT_THAT(refusal_of(replace("part-1", "part-01")), HasSubstr("is not expected"));
  EXPECT_THAT(refusal_of(replace("part-1", "part--1")), HasSubstr("is not expected"));
  EXPECT_THAT(refusal_of(replace("set-0.part-1", "set-1.part-1")), HasSubstr("is not expected"));
  EXPECT_THAT(refusal_of([&](std::string& text) {
                replace("sets 1", "sets 2")(text);
                replace("file here set-0.part-0", "file here set-1.bin 128 " +
                                                      std::string(32, '0') +
                                                      "\nfile here set-1.part-1")(text);
              }),
              HasSubstr("'set-0.part-1.bin' is not expected, or there twice"));
  EXPECT_THAT(refusal_of(replace("tensor 0 10 o/x", "tensor 1 10 o/x")),
              HasSubstr("tensor 'o/x' is not expected"));
  EXPECT_THAT(refusal_of(replace("tensor 0 10 o/x", "tensor 0 0 o/x")),
              HasSubstr("tensor 'o/x' is not expected"));
  EXPECT_THAT(refusal_of(replace("tensor 0 10 o/x", "tensor 0 10 a")),
              HasSubstr("tensor 'a' is not expected, or there twice"));
}

// Row B13: every bit of every part counts, whoever reads it.
TEST(Parts, AThousandFlippedBitsAreFound) {
  const ScratchFolder scratch;
  testing::save(*posix_file_system(), scratch.path(), 10, 1, 2, 3);
  const Generation generation = list_generations(scratch.path()).at(0);
  std::mt19937_64 random(1);
  for (int flip = 0; flip < 1000; ++flip) {
    const ManifestFile& file = generation.manifest->files.at(1 + random() % 3);
    const std::string path = generation.folder + '/' + file.name;
    const auto bit = random() % (file.bytes * 8);
    const auto turn = [&] {
      std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(bit / 8));
      const int byte = stream.get();
      stream.seekp(static_cast<std::streamoff>(bit / 8));
      stream.put(static_cast<char>(byte ^ (1 << (bit % 8))));
    };
    turn();
    EXPECT_THAT(message_of([&] {
                  PartReader reader(generation, file);
                  (void)reader.read(0);
                  (void)reader.read(1);
                }),
                AllOf(HasSubstr(file.name),
                      ::testing::ContainsRegex("header: |index: |padding: |'optimizer/.* differs")))
        << path << " bit " << bit;
    turn();
  }
  EXPECT_EQ(testing::whole(scratch.path()), (std::map<std::int64_t, int>{{10, 1}}));
}

TEST(Parts, AMissingOneMakesTheOlderGenerationTheNewest) {
  const ScratchFolder scratch;
  for (const int iteration : {10, 20}) {
    testing::save(*posix_file_system(), scratch.path(), iteration, iteration, 2, 2);
  }
  std::filesystem::remove(scratch.path() + '/' + generation_name(20) + "/set-0.part-1.bin");
  EXPECT_EQ(testing::whole(scratch.path()), (std::map<std::int64_t, int>{{10, 10}}));
  EXPECT_THAT(message_of([&] { check_tiles_here(list_generations(scratch.path()).at(0)); }),
              HasSubstr("set-0.part-1.bin: cannot be opened"));
}

}  // namespace
}  // namespace chainmail::internal
