// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <ATen/ATen.h>

#include <chainmail/idx.h>

#include "plugin/data/idx_format.h"

namespace chainmail {

namespace {

namespace fs = std::filesystem;

// MNIST unpacks to 47 MB; a hundred times that is a mistake or an attack on the memory.
constexpr std::size_t kUnpackedLimit = std::size_t{4} << 30;
constexpr const char* kDebianFashionMnist = "/usr/share/datasets/fashion-mnist";
constexpr const char* kTrainImages = "train-images-idx3-ubyte";

std::vector<std::byte> read_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw SystemError("cannot read " + path + ": it is a directory", EISDIR);
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw system_error("cannot open " + path);
  const std::streamoff size = file.tellg();
  if (size < 0) throw SystemError("cannot read " + path + ": it is no regular file", ESPIPE);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), size)) {
    throw system_error("cannot read " + path);
  }
  return bytes;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The plain file, or the packed one, or nothing.
std::string existing_file(const fs::path& directory, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const fs::path path = directory / (name + suffix);
    if (is_there(path)) return path.string();
  }
  return "";
}

bool has_data(const std::string& directory) {
  return !directory.empty() && !existing_file(directory, kTrainImages).empty();
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  std::vector<std::byte> bytes = read_file(path);
  if (internal::is_gzip(bytes)) bytes = internal::gunzip(bytes, path, kUnpackedLimit);
  const internal::IdxHead head = internal::parse_idx(bytes, path);
  at::Tensor result = at::empty(head.dims, c10::TensorOptions(c10::kByte));
  if (result.numel() != 0) {
    std::memcpy(result.data_ptr(), bytes.data() + head.data_begin, result.nbytes());
  }
  return result;
}

DatasetLocation find_dataset(std::string_view dataset, const std::string& directory) {
  const std::string name(dataset);
  if (name != "mnist" && name != "fashion_mnist") {
    throw InvalidArgument("unknown dataset '" + name + "'; known are mnist, fashion_mnist");
  }
  if (!directory.empty()) {
    if (has_data(directory)) {
      return {directory, "--data"};
    }
    throw InvalidArgument("no " + std::string(kTrainImages) + " or " + kTrainImages + ".gz in " +
                          directory + "; give the folder with the four IDX files of " + name);
  }
  std::vector<DatasetLocation> places;
  if (const char* data = std::getenv("CHAINMAIL_DATA"); data != nullptr && *data != '\0') {
    places.push_back({(fs::path(data) / name).string(), "CHAINMAIL_DATA"});
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    places.push_back({(fs::path(home) / ".cache/chainmail" / name).string(), "~/.cache/chainmail"});
  }
  if (name == "fashion_mnist") {
    places.push_back({kDebianFashionMnist, "Debian's dataset-fashion-mnist"});
  }
  std::string looked;
  for (const DatasetLocation& place : places) {
    if (has_data(place.directory)) return place;
    looked += (looked.empty() ? "" : ", ") + place.directory;
  }
  throw InvalidArgument("no data of " + name + " found in " + looked +
                        "; give --data DIR or set CHAINMAIL_DATA=DIR for DIR/" + name +
                        (name == "mnist" ? ", or use --dataset fashion_mnist with Debian's package "
                                           "dataset-fashion-mnist"
                                         : ", or install Debian's package dataset-fashion-mnist"));
}

ImageSet read_image_set(const std::string& directory, const std::string& prefix,
                        std::int64_t classes) {
  const auto read = [&](const std::string& name, std::int64_t dims) {
    const std::string path = existing_file(directory, name);
    if (path.empty()) throw InvalidArgument("no " + name + " or " + name + ".gz in " + directory);
    at::Tensor tensor = read_idx(path);
    if (tensor.dim() != dims) {
      throw InvalidArgument(path + ", offset 3: " + std::to_string(tensor.dim()) +
                            " dimensions; expected " + std::to_string(dims));
    }
    return tensor;
  };
  ImageSet set;
  set.images = read(prefix + "-images-idx3-ubyte", 3);
  set.labels = read(prefix + "-labels-idx1-ubyte", 1);
  if (set.images.size(0) != set.labels.size(0)) {
    throw InvalidArgument(directory + ": " + prefix + " has " + std::to_string(set.images.size(0)) +
                          " images and " + std::to_string(set.labels.size(0)) + " labels");
  }
  if (set.images.size(0) == 0) throw InvalidArgument(directory + ": " + prefix + " has no samples");
  const std::int64_t highest = set.labels.max().item<std::uint8_t>();
  if (highest >= classes) {
    throw InvalidArgument(directory + ": " + prefix + " has a label " + std::to_string(highest) +
                          "; expected labels below " + std::to_string(classes));
  }
  return set;
}

}  // namespace chainmail
