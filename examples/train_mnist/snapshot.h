// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One file with model, optimizer and how far training was. Written by rank 0; replaced as a whole,
// so that there is always a complete one.

#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

#include "model.h"

struct Position {
  std::int64_t epoch = 0;
  std::int64_t iteration = 0;
  double elapsed_time = 0.0;
};

/// Throws chainmail::SystemError when the file cannot be written; an older one stays.
void save_snapshot(const std::string& path, const Mlp& model,
                   const torch::optim::Optimizer& optimizer, const Position& position);

/// Throws chainmail::InvalidArgument when the file is missing, damaged, or of another model.
Position load_snapshot(const std::string& path, Mlp& model, torch::optim::Optimizer& optimizer);
