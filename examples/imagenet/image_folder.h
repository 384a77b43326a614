// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Images in one folder per class, as ImageNet's are: a dataset for torch's data loaders, whose
// threads decode. Local; get() may be called by several threads at a time.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

class ImageFolder : public torch::data::datasets::Dataset<ImageFolder> {
 public:
  /// Files *.jpg, *.jpeg and *.ppm in the folders below `folder`, whose names in order are the
  /// classes. `augments`: random crops and mirroring, else the middle. `side`: of what get() gives.
  /// @throws chainmail::InvalidArgument  no such folder, or no image in it
  ImageFolder(const std::filesystem::path& folder, std::int64_t side, bool augments);

  /// float32 [3, side, side], normalized, and the class.
  torch::data::Example<> get(std::size_t index) override;
  torch::optional<std::size_t> size() const override { return images_.size(); }
  std::int64_t classes() const { return static_cast<std::int64_t>(classes_.size()); }

 private:
  std::vector<std::string> classes_;
  std::vector<std::pair<std::filesystem::path, std::int64_t>> images_;  ///< file, class
  std::int64_t side_;
  bool augments_;
};

/// Writes a folder of small images to try with: `classes` colours with noise, as PPM.
void make_sample(const std::filesystem::path& folder, std::int64_t classes,
                 std::int64_t images_per_class);
