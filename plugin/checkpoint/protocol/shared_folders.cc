// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/protocol/shared_folders.h"

#include <chainmail/checkpoint_error.h>
#include <chainmail/train/agreed_error.h>
#include <chainmail/train/agreement.h>

#include <algorithm>
#include <filesystem>
#include <random>

namespace chainmail::internal {

std::size_t FolderMembers::position() const {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void agree_on_success(Communicator& communicator, const std::string& what,
                      const std::string& error) {
  try {
    throw_if_any_failed(communicator, error);
  } catch (const InvalidArgument& agreed) {
    throw Agreed(CheckpointError(what + ": " + agreed.what()));
  }
}

FolderMembers find_folder_members(Communicator& communicator, FileSystem& files,
                                  const std::string& folder) {
  // New names: a network file system caches that a file does not exist.
  std::random_device random;
  const std::string own = ".seen-" + std::to_string(random()) + std::to_string(random());
  const std::string own_path = folder + '/' + own;
  const std::string what = "the folder of checkpoints cannot be used";
  const std::string failure = error_of([&] {
    make_folders(files, folder);
    files.close(files.create(own_path), own_path);
  });
  try {
    agree_on_success(communicator, what, failure);
  } catch (const CheckpointError&) {
    std::error_code error;
    std::filesystem::remove(own_path, error);
    throw;
  }
  const std::vector<std::string> names = communicator.allgather_obj(own);
  FolderMembers members{.ranks = {}, .rank = communicator.rank()};
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    std::error_code error;
    if (std::filesystem::exists(folder + '/' + names[rank], error)) {
      members.ranks.push_back(static_cast<int>(rank));
    }
  }
  communicator.barrier();  // all have looked
  agree_on_success(communicator, what, error_of([&] { files.remove(own_path); }));
  return members;
}

}  // namespace chainmail::internal
