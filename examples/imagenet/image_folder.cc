// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "image_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>

#include <chainmail/error.h>

#ifdef HAS_JPEG
#include <csetjmp>

#include <jpeglib.h>
#endif

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw chainmail::InvalidArgument(path.string() + ": " + what);
}

// uint8 [height, width, 3]. PPM: "P6 width height 255", one space, the pixels.
torch::Tensor read_ppm(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  std::int64_t width = 0, height = 0, most = 0;
  file >> magic >> width >> height >> most;
  file.get();
  if (!file || magic != "P6" || most != 255 || width < 1 || height < 1 ||
      width > kMostPixels / height) {
    fail(path, "not a PPM image of three bytes a pixel (P6, 255)");
  }
  const torch::Tensor image = torch::empty({height, width, 3}, torch::kByte);
  if (!file.read(static_cast<char*>(image.mutable_data_ptr()), image.numel())) {
    fail(path, "is cut off");
  }
  return image;
}

#ifdef HAS_JPEG
struct JpegError {
  jpeg_error_mgr manager;  // first: libjpeg knows this part
  std::jmp_buf back;
};

// uint8 [height, width, 3]; what libjpeg throws to, so there is nothing in it that has a
// destructor.
bool decode(jpeg_decompress_struct& jpeg, JpegError& error, const std::string& bytes,
            torch::Tensor& image) {
  if (setjmp(error.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  image.resize_({jpeg.output_height, jpeg.output_width, 3});
  auto* const begin = static_cast<unsigned char*>(image.mutable_data_ptr());
  while (jpeg.output_scanline < jpeg.output_height) {
    unsigned char* row = begin + std::size_t{jpeg.output_scanline} * jpeg.output_width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  return jpeg_finish_decompress(&jpeg) != 0;
}
#endif

torch::Tensor read_jpeg([[maybe_unused]] const fs::path& path) {
#ifdef HAS_JPEG
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  torch::Tensor image = torch::empty({0}, torch::kByte);
  jpeg_decompress_struct jpeg{};
  JpegError error{};
  jpeg.err = jpeg_std_error(&error.manager);
  error.manager.error_exit = [](j_common_ptr common) {
    std::longjmp(reinterpret_cast<JpegError*>(common->err)->back, 1);
  };
  error.manager.output_message = [](j_common_ptr /*common*/) {};
  const bool is_whole = decode(jpeg, error, bytes, image);
  jpeg_destroy_decompress(&jpeg);
  if (!is_whole) fail(path, "not a whole JPEG image");
  return image;
#else
  fail(path, "this program was built without libjpeg (libjpeg62-turbo-dev); convert it to PPM");
#endif
}

bool is_jpeg(const fs::path& path) {
  return path.extension() == ".jpg" || path.extension() == ".jpeg" || path.extension() == ".JPEG";
}

// SplitMix64 of Steele, Lea and Flood, 2014: a number for each number, that looks random.
std::uint64_t mix(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

}  // namespace

ImageFolder::ImageFolder(const fs::path& folder, std::int64_t side,
                         std::optional<std::uint64_t> seed)
    : side_(side), seed_(seed), epoch_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (!fs::is_directory(folder)) fail(folder, "not a folder; it needs one folder per class");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) classes_.push_back(entry.path().filename().string());
  }
  std::sort(classes_.begin(), classes_.end());
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const std::size_t before = images_.size();
    for (const auto& entry : fs::directory_iterator(folder / classes_[i])) {
      if (is_jpeg(entry.path()) || entry.path().extension() == ".ppm") {
        images_.emplace_back(entry.path(), static_cast<std::int64_t>(i));
      }
    }
    if (images_.size() == before) fail(folder / classes_[i], "has no *.jpg, *.jpeg or *.ppm");
  }
  std::sort(images_.begin(), images_.end());  // on all ranks alike, whatever the file system
  if (images_.empty()) fail(folder, "has no folder in it; it needs one per class");
}

torch::data::Example<> ImageFolder::get(std::size_t index) {
  const auto& [path, label] = images_.at(index);
  torch::Tensor image = (is_jpeg(path) ? read_jpeg(path) : read_ppm(path)).permute({2, 0, 1});
  // The shorter side becomes a seventh longer than what is cut out, as is usual for ImageNet.
  const double scale = static_cast<double>(side_) * 8 / 7 /
                       static_cast<double>(std::min(image.size(1), image.size(2)));
  const auto scaled = [&](std::int64_t length) {
    return std::max(side_, static_cast<std::int64_t>(static_cast<double>(length) * scale));
  };
  image = torch::upsample_bilinear2d(image.unsqueeze(0).to(torch::kFloat),
                                     {scaled(image.size(1)), scaled(image.size(2))}, false)
              .squeeze(0);
  const std::int64_t below = image.size(1) - side_;
  const std::int64_t right = image.size(2) - side_;
  std::uint64_t random = seed_ ? mix(mix(mix(*seed_) + *epoch_) + index) : 0;
  const auto random_up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>((random = mix(random)) % static_cast<std::uint64_t>(most + 1));
  };
  image = image.narrow(1, seed_ ? random_up_to(below) : below / 2, side_);
  image = image.narrow(2, seed_ ? random_up_to(right) : right / 2, side_);
  if (seed_ && random_up_to(1) == 1) image = image.flip(2);
  const torch::Tensor mean = torch::tensor({123.7F, 116.3F, 103.5F}).view({3, 1, 1});
  const torch::Tensor deviation = torch::tensor({58.4F, 57.1F, 57.4F}).view({3, 1, 1});
  return {(image - mean) / deviation, torch::tensor(label)};
}

void check_same_classes(const ImageFolder& train, const ImageFolder& validation) {
  const auto& ours = train.classes();
  const auto& theirs = validation.classes();
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (a == ours.end() && b == theirs.end()) return;
  const auto name = [](const auto& at, const auto& all) {
    return at == all.end() ? "is missing" : "is '" + *at + "'";
  };
  throw chainmail::InvalidArgument("train/ and val/ need folders of the same names: class " +
                                   std::to_string(a - ours.begin()) + " " + name(a, ours) +
                                   " in train/ and " + name(b, theirs) + " in val/");
}

void make_sample(const fs::path& folder, std::int64_t classes, std::int64_t images_per_class) {
  for (std::int64_t i = 0; i < 2 * classes * images_per_class; ++i) {
    const std::int64_t c = i % classes;
    const fs::path place =
        folder / (i / classes % 2 == 0 ? "train" : "val") / ("class" + std::to_string(c));
    fs::create_directories(place);
    const torch::Tensor colour = torch::tensor({c * 90 % 256, c * 50 % 256, c * 20}, torch::kFloat);
    const torch::Tensor noisy = (colour + 40 * torch::randn({40 + i % 16, 48, 3})).clamp(0, 255);
    const torch::Tensor image = noisy.to(torch::kByte);
    std::ofstream file(place / (std::to_string(i) + ".ppm"), std::ios::binary);
    file << "P6\n48 " << image.size(0) << "\n255\n";
    file.write(static_cast<const char*>(image.const_data_ptr()), image.numel());
    if (!file.flush()) fail(place, "cannot write in it: " + std::generic_category().message(errno));
  }
}
