// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// That the parts of tensors which the ranks have written make up whole ones, and that ranks with
// copies of a part have the same: what every rank checks before a generation gets its name.

#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/checkpoint/protocol/save_protocol.h"

namespace chainmail::internal {

/// What a rank tells the others about its parts.
struct OwnParts {
  int set = 0;
  ManifestFile file;  ///< that it has written; without a name for none
  std::string head;   ///< the file's encoded_head()
  std::vector<ManifestTensor> tensors;
  std::vector<PartItem> items;

  static constexpr char kObjectName[] = "parts of tensors";
  static auto fields(auto& self) {
    return std::tie(self.set, self.file, self.head, self.tensors, self.items);
  }
};

/// A file's head and index, to be sent.
[[nodiscard]] std::string encoded_head(const FileIndex& index);

/// This rank's, but the file. Local.
[[nodiscard]] OwnParts own_parts(const SavePlace& place, const SaveJob& job);

/// All tensors in parts, for the manifest. Collective.
/// @throws CheckpointError  on all ranks, begins with `what`: parts leave a gap, overlap, or differ
///                          in what they should share; a rank with a copy of a part has more, less
///                          or other state than the rank that writes it
[[nodiscard]] std::vector<ManifestTensor> agree_on_parts(Communicator& communicator,
                                                         const SaveJob& job,
                                                         const std::vector<OwnParts>& ranks,
                                                         const std::string& what);

}  // namespace chainmail::internal
