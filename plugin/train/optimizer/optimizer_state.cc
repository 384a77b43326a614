// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/optimizer_state.h"

#include <sstream>

#include <torch/serialize/archive.h>

namespace chainmail::internal {

std::string save_optimizer(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void load_optimizer(const std::string& bytes, torch::optim::Optimizer& optimizer) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  // load() adds to what is there: state that only this rank has would stay.
  optimizer.state().clear();
  optimizer.load(archive);
}

}  // namespace chainmail::internal
