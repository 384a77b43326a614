// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The tensors of a generation that lie in parts (store/parts.h): how the ranks verify them
// together, and how each reads what it wants of them, however many ranks have written them.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/checkpoint/protocol/save_protocol.h"
#include "plugin/checkpoint/store/parts.h"

namespace chainmail::internal {

/// What a rank has found of the files of parts in its folder.
struct PartsReport {
  int folder = 0;                  ///< first rank that sees it
  std::vector<std::string> files;  ///< that are there, and of which its share is whole

  static constexpr char kObjectName[] = "report on parts of tensors";
  static auto fields(auto& self) { return std::tie(self.folder, self.files); }
};

class RestoredParts {
 public:
  RestoredParts() = default;
  /// `folder`: the first rank that sees this rank's.
  explicit RestoredParts(int folder) { report_.folder = folder; }
  /// Checks head and index of every file of parts in this rank's folder, and of all entries those
  /// that fall to it: its share among the ranks that see the folder. What is wrong goes to
  /// `problems`. Local.
  void verify_share(const SavePlace& place, const Generation& generation, std::string& problems);
  [[nodiscard]] const PartsReport& report() const noexcept { return report_; }

  /// Makes all indices known to all ranks and checks that the parts tile their tensors. What is
  /// wrong, the same on all ranks; empty when all is there. Collective.
  [[nodiscard]] std::string complete(Communicator& communicator, const Manifest& manifest,
                                     const std::vector<PartsReport>& reports);

  /// Of replica set `set`, once complete; of all of them where it is unset, of tensors of the same
  /// name the first. Local.
  [[nodiscard]] std::map<std::string, PartTensor> tensors(std::optional<int> set) const;
  /// Fulfils this rank's wishes, from files where all ranks see them, else from whoever does; an
  /// entry at a time. Collective.
  /// @throws CheckpointError  on all ranks, begins with `what`: something that was verified has
  ///                          become unreadable
  void read(Communicator& communicator, std::span<const PartWish> wishes,
            const std::string& what) const;

 private:
  struct File {
    ManifestFile file;
    int set = 0;
    FileIndex index;
    bool is_everywhere = false;
    std::vector<int> holders;  ///< ranks that can read it
  };
  /// Of the data of one file.
  struct Source {
    std::optional<PartReader> reader;  ///< once something was read here
    std::string received;
  };

  std::span<const std::byte> fetch(Communicator& communicator, const File& file, std::size_t entry,
                                   Source& source, std::string& problem) const;

  Generation generation_;  ///< this rank's
  PartsReport report_;
  std::map<std::string, FileIndex> here_;
  std::vector<File> files_;
  std::vector<ManifestTensor> tensors_;
};

}  // namespace chainmail::internal
