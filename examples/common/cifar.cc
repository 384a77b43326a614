// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "cifar.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <chainmail/error.h>

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = 3 * kSide * kSide;
constexpr std::int64_t kRecord = 1 + kPixels;  // a label, then red, green and blue planes
constexpr std::int64_t kShift = 4;
constexpr const char* kTestBatch = "test_batch.bin";

// The archive has its files in a folder of its own.
fs::path base_of(const fs::path& folder) {
  const fs::path inner = folder / "cifar-10-batches-bin";
  return fs::exists(inner) ? inner : folder;
}

Images read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw chainmail::SystemError(
        "cannot read " + path.string() + ": --data takes the folder of CIFAR-10's binary version",
        errno);
  }
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0 || size % kRecord != 0) {
    throw chainmail::InvalidArgument(path.string() + " has " + std::to_string(size) +
                                     " bytes, which is no multiple of " + std::to_string(kRecord));
  }
  const torch::Tensor records =
      torch::from_blob(bytes.data(), {size / kRecord, kRecord}, torch::kByte);
  Images images{records.narrow(1, 1, kPixels).reshape({-1, 3, kSide, kSide}).clone(),
                records.select(1, 0).to(torch::kLong)};
  if (images.t.max().item<std::int64_t>() >= kClasses) {
    throw chainmail::InvalidArgument(path.string() + " has labels of 10 or more");
  }
  return images;
}

Images make_images(const torch::Tensor& patterns, std::int64_t count) {
  const torch::Tensor t = torch::arange(count, torch::kLong).remainder(kClasses);
  const torch::Tensor noise = torch::randn({count, 3, kSide, kSide}).mul_(50);
  return {patterns.index_select(0, t).add_(noise).clamp_(0, 255).to(torch::kByte), t};
}

}  // namespace

std::string find_cifar(const std::string& folder) {
  if (!folder.empty()) return folder;
  std::string looked;
  for (const auto& [variable, below] :
       {std::pair{"CHAINMAIL_DATA", "cifar10"}, std::pair{"HOME", ".cache/chainmail/cifar10"}}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const fs::path place = fs::path(value) / below;
    if (fs::exists(base_of(place) / kTestBatch)) return place.string();
    looked += (looked.empty() ? "" : " and ") + place.string();
  }
  throw chainmail::InvalidArgument("no CIFAR-10 in " + (looked.empty() ? "$HOME" : looked) +
                                   ": give --data DIR, or draw images like it: --make_data DIR");
}

Cifar read_cifar(const std::string& folder) {
  const fs::path base = base_of(folder);
  std::vector<torch::Tensor> x;
  std::vector<torch::Tensor> t;
  for (int part = 1; part <= 5; ++part) {
    const Images images = read_file(base / ("data_batch_" + std::to_string(part) + ".bin"));
    x.push_back(images.x);
    t.push_back(images.t);
  }
  return {{torch::cat(x), torch::cat(t)}, read_file(base / kTestBatch)};
}

Cifar make_synthetic(std::int64_t samples, std::uint64_t seed) {
  torch::manual_seed(seed);
  const torch::Tensor coarse = torch::rand({kClasses, 3, 4, 4}).mul_(255);
  const torch::Tensor patterns = coarse.repeat_interleave(8, 2).repeat_interleave(8, 3);
  return {make_images(patterns, samples), make_images(patterns, (samples + 3) / 4)};
}

torch::Tensor take_batch(const Images& images, const torch::Tensor& indices, bool augments) {
  torch::Tensor x = images.x.index_select(0, indices);
  if (augments) {
    const torch::Tensor padded = torch::constant_pad_nd(x, {kShift, kShift, kShift, kShift});
    const torch::Tensor moves = torch::randint(0, 2 * kShift + 1, {x.size(0), 2}, torch::kLong);
    const auto move = moves.accessor<std::int64_t, 2>();
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      x[i].copy_(padded[i].narrow(1, move[i][0], kSide).narrow(2, move[i][1], kSide));
    }
    x = torch::where(torch::rand({x.size(0), 1, 1, 1}) < 0.5, x, x.flip(3));
  }
  static const torch::Tensor mean = torch::tensor({125.3F, 123.0F, 113.9F}).view({1, 3, 1, 1});
  static const torch::Tensor deviation = torch::tensor({63.0F, 62.1F, 66.7F}).view({1, 3, 1, 1});
  return x.to(torch::kFloat).sub_(mean).div_(deviation);
}
