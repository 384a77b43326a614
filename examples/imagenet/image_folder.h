// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Images in one folder per class, as ImageNet's are: a dataset for torch's data loaders, whose
// threads decode. Local; get() may be called by several threads at a time.

#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

class ImageFolder : public torch::data::datasets::Dataset<ImageFolder> {
 public:
  /// Files *.jpg, *.jpeg and *.ppm in the folders below `folder`, whose names in order are the
  /// classes. `seed`: of random crops and mirroring; without one the middle. `side`: of what get()
  /// gives.
  /// @throws chainmail::InvalidArgument  no such folder, or no image in it or in one of a class
  ImageFolder(const std::filesystem::path& folder, std::int64_t side,
              std::optional<std::uint64_t> seed);

  /// Crops and mirrors in another way from here on, all copies of this folder too. Between two
  /// passes of a loader, whose threads have copies.
  void set_epoch(std::int64_t epoch) const { *epoch_ = static_cast<std::uint64_t>(epoch); }

  /// float32 [3, side, side], normalized, and the class. Of seed, epoch and index alone, whichever
  /// thread asks. @throws chainmail::InvalidArgument  a broken image
  torch::data::Example<> get(std::size_t index) override;
  torch::optional<std::size_t> size() const override { return images_.size(); }
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  std::vector<std::string> classes_;
  std::vector<std::pair<std::filesystem::path, std::int64_t>> images_;  ///< file, class
  std::int64_t side_;
  std::optional<std::uint64_t> seed_;
  std::shared_ptr<std::atomic<std::uint64_t>> epoch_;  ///< of all copies
};

/// @throws chainmail::InvalidArgument  the folders do not have the same classes, so that a label
/// would mean another one in each
void check_same_classes(const ImageFolder& train, const ImageFolder& validation);

/// Writes a folder of small images to try with: `classes` colours with noise, as PPM.
void make_sample(const std::filesystem::path& folder, std::int64_t classes,
                 std::int64_t images_per_class);
