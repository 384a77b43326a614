// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// MNIST-like data: IDX files, gzip or plain, and where to find them.
//
// Local; no communication. Wrap loading in on_all_ranks() so that all ranks end when one cannot
// read.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <chainmail/error.h>
#include <chainmail/export.h>

namespace chainmail {

/// Reads an IDX file of unsigned bytes into a uint8 tensor of the file's dimensions.
/// @throws SystemError      the file cannot be opened or read; names it
/// @throws InvalidArgument  it is not what it should be: names file, offset (in the unpacked data),
///                          what is there and what was expected
[[nodiscard]] CHAINMAIL_API at::Tensor read_idx(const std::string& path);

/// Images and labels of one part of a dataset.
struct ImageSet {
  at::Tensor images;  ///< uint8 [N, rows, columns]
  at::Tensor labels;  ///< uint8 [N]
};

/// Where a dataset was found.
struct DatasetLocation {
  std::string directory;  ///< that has the files
  std::string origin;     ///< "--data", "CHAINMAIL_DATA", "~/.cache/chainmail", a package's name
};

/// Looks for the folder with the files of `dataset` ("mnist", "fashion_mnist"): `directory` when
/// not empty, else `$CHAINMAIL_DATA/DATASET`, else `~/.cache/chainmail/DATASET`, else for
/// fashion_mnist Debian's package dataset-fashion-mnist. A place that is named but has no data is
/// an error for `directory`, and passed over otherwise.
/// @throws InvalidArgument  unknown dataset, or not found: lists the places and what to do
[[nodiscard]] CHAINMAIL_API DatasetLocation find_dataset(std::string_view dataset,
                                                         const std::string& directory = "");

/// Reads one part of an MNIST-like dataset: the files `PREFIX-images-idx3-ubyte` and
/// `PREFIX-labels-idx1-ubyte`, with .gz or without. Labels must be below `classes`.
/// @throws SystemError      as read_idx()
/// @throws InvalidArgument  as read_idx(); images and labels differ in number; a label is too large
[[nodiscard]] CHAINMAIL_API ImageSet read_image_set(const std::string& directory,
                                                    const std::string& prefix,
                                                    std::int64_t classes = 10);

}  // namespace chainmail
