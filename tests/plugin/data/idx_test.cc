// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <ATen/ATen.h>

#include <chainmail/idx.h>

namespace chainmail {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string idx(const std::vector<std::uint32_t>& dims, const std::string& data,
                unsigned char type = 0x08) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(dim >> shift & 0xff);
  }
  return bytes + data;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class Idx : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "chainmail_idx_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // The message with which reading these bytes fails.
  std::string failure(const std::string& bytes) {
    const std::string path = write("file", bytes);
    try {
      (void)read_idx(path);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
      return error.what();
    }
    ADD_FAILURE() << "read without an error";
    return "";
  }

  fs::path folder_;
};

TEST_F(Idx, ReadsPlainAndGzip) {
  const std::string bytes = idx({2, 3}, {1, 2, 3, 4, 5, '\xff'});
  for (const std::string& content :
       {bytes, gzip(bytes), gzip(bytes.substr(0, 5)) + gzip(bytes.substr(5))}) {
    const at::Tensor tensor = read_idx(write("file", content));
    EXPECT_EQ(tensor.sizes().vec(), (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(tensor.scalar_type(), c10::kByte);
    EXPECT_EQ(tensor[0][0].item<int>(), 1);
    EXPECT_EQ(tensor[1][2].item<int>(), 255);
  }
}

TEST_F(Idx, ReadsAnEmptyDimension) {
  EXPECT_EQ(read_idx(write("file", idx({0, 28, 28}, ""))).numel(), 0);
}

TEST_F(Idx, TruncatedAtEveryByteIsAnErrorThatNamesTheOffset) {
  const std::string bytes = idx({2, 3}, "abcdef");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(failure(bytes.substr(0, length)), HasSubstr("offset " + std::to_string(length)))
        << length;
  }
}

TEST_F(Idx, GzipTruncatedAtEveryByteIsAnError) {
  const std::string bytes = gzip(idx({2, 3}, "abcdef"));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(failure(bytes.substr(0, length)), "") << length;
  }
  EXPECT_THAT(failure(bytes.substr(0, bytes.size() - 1)), HasSubstr("truncated"));
}

TEST_F(Idx, DamagedGzipIsAnError) {
  std::string bytes = gzip(idx({100}, std::string(100, 'x')));
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);  // the checksum
  EXPECT_THAT(failure(bytes), HasSubstr("damaged gzip data"));
}

TEST_F(Idx, WrongMagicIsAnError) {
  EXPECT_THAT(failure("PNG something"), HasSubstr("offset 0"));
  EXPECT_THAT(failure(idx({1}, "abcd", 0x0d)), HasSubstr("element type 0x0d"));
  EXPECT_THAT(failure(idx({}, "")), HasSubstr("0 dimensions"));
}

TEST_F(Idx, WrongLengthIsAnError) {
  EXPECT_THAT(failure(idx({2, 3}, "abcdefg")), HasSubstr("after its end"));
  EXPECT_THAT(failure(idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc")), HasSubstr("2^63"));
  EXPECT_THAT(failure(idx({60000, 28, 28}, "abc")), HasSubstr("47040000"));
}

TEST_F(Idx, MissingFileIsASystemErrorWithItsName) {
  EXPECT_THROW((void)read_idx((folder_ / "none").string()), SystemError);
  EXPECT_THROW((void)read_idx(folder_.string()), SystemError);
}

TEST_F(Idx, ImageSetChecksLabels) {
  write("train-images-idx3-ubyte", idx({3, 2, 2}, std::string(12, 'a')));
  write("train-labels-idx1-ubyte.gz", gzip(idx({3}, {0, 9, 1})));
  const ImageSet set = read_image_set(folder_.string(), "train");
  EXPECT_EQ(set.images.size(0), 3);
  EXPECT_EQ(set.labels[1].item<int>(), 9);

  write("train-labels-idx1-ubyte.gz", gzip(idx({2}, {0, 9})));
  EXPECT_THROW((void)read_image_set(folder_.string(), "train"), InvalidArgument);
  write("train-labels-idx1-ubyte.gz", gzip(idx({3}, {0, 10, 1})));
  EXPECT_THROW((void)read_image_set(folder_.string(), "train"), InvalidArgument);
  EXPECT_THROW((void)read_image_set(folder_.string(), "t10k"), InvalidArgument);
}

TEST_F(Idx, DatasetIsLookedForInOrder) {
  fs::create_directories(folder_ / "env/mnist");
  fs::create_directories(folder_ / "home/.cache/chainmail/mnist");
  write("home/.cache/chainmail/mnist/train-images-idx3-ubyte.gz", "");
  ASSERT_EQ(setenv("CHAINMAIL_DATA", (folder_ / "env").c_str(), 1), 0);
  ASSERT_EQ(setenv("HOME", (folder_ / "home").c_str(), 1), 0);
  EXPECT_EQ(find_dataset("mnist").origin, "~/.cache/chainmail");

  write("env/mnist/train-images-idx3-ubyte", "");
  EXPECT_EQ(find_dataset("mnist").origin, "CHAINMAIL_DATA");
  EXPECT_EQ(find_dataset("mnist").directory, (folder_ / "env/mnist").string());

  EXPECT_EQ(find_dataset("mnist", (folder_ / "env/mnist").string()).origin, "--data");
  EXPECT_THROW((void)find_dataset("mnist", folder_.string()), InvalidArgument);
  EXPECT_THROW((void)find_dataset("cifar"), InvalidArgument);
  unsetenv("CHAINMAIL_DATA");
}

TEST_F(Idx, MissingDatasetListsWhereItLooked) {
  ASSERT_EQ(setenv("CHAINMAIL_DATA", (folder_ / "env").c_str(), 1), 0);
  ASSERT_EQ(setenv("HOME", (folder_ / "home").c_str(), 1), 0);
  try {
    (void)find_dataset("mnist");
    FAIL() << "found";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "env/mnist").string()));
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "home/.cache/chainmail/mnist").string()));
    EXPECT_THAT(error.what(), HasSubstr("--data"));
  }
  unsetenv("CHAINMAIL_DATA");
}

}  // namespace
}  // namespace chainmail
