// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A generation that one process writes by itself: the last will of a job whose other ranks, or
// whose launcher, may be gone. Others may do the same in the same folder at the same time, knowing
// nothing of each other: each writes into a folder of its own (".will-HOST-PID"), and the first to
// give its generation the name has saved it for all, since the state is the same.
//
// Errors of the file system are SystemError.

#pragma once

#include <cstdint>
#include <string>

#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/file_system.h"

namespace chainmail::internal {

/// Saves `image`, which has the whole state, as the generation of a job of one rank. Nothing is
/// written where there is a complete one of that iteration already. Whatever fails, older ones
/// stay.
void save_alone(FileSystem& files, const std::string& run_folder, std::int64_t iteration,
                FileImage& image);

}  // namespace chainmail::internal
