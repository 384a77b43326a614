// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "snapshot.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include <chainmail/error.h>

namespace {

std::vector<std::vector<std::int64_t>> shapes_of(const Mlp& model) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const torch::Tensor& parameter : model->parameters()) {
    shapes.push_back(parameter.sizes().vec());
  }
  return shapes;
}

}  // namespace

void save_snapshot(const std::string& path, const Mlp& model,
                   const torch::optim::Optimizer& optimizer, const Position& position) {
  torch::serialize::OutputArchive archive;
  torch::serialize::OutputArchive model_archive(archive.compilation_unit());
  torch::serialize::OutputArchive optimizer_archive(archive.compilation_unit());
  model->save(model_archive);
  optimizer.save(optimizer_archive);
  archive.write("model", model_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("epoch", c10::IValue(position.epoch));
  archive.write("iteration", c10::IValue(position.iteration));
  archive.write("elapsed_time", c10::IValue(position.elapsed_time));
  const std::string temporary = path + ".new";
  std::error_code error;
  try {
    archive.save_to(temporary);
  } catch (const c10::Error& caught) {
    std::filesystem::remove(temporary, error);
    throw chainmail::SystemError(
        "cannot write " + temporary + ": " + caught.what_without_backtrace(), EIO);
  }
  std::filesystem::rename(temporary, path, error);
  if (error) {
    throw chainmail::SystemError(
        "cannot rename " + temporary + " to " + path + ": " + error.message(), error.value());
  }
}

Position load_snapshot(const std::string& path, Mlp& model, torch::optim::Optimizer& optimizer) {
  const auto expected = shapes_of(model);
  Position position;
  try {
    torch::serialize::InputArchive archive;
    torch::serialize::InputArchive model_archive;
    torch::serialize::InputArchive optimizer_archive;
    c10::IValue value;
    archive.load_from(path, model->parameters().front().device());
    archive.read("model", model_archive);
    archive.read("optimizer", optimizer_archive);
    archive.read("epoch", value);
    position.epoch = value.toInt();
    archive.read("iteration", value);
    position.iteration = value.toInt();
    archive.read("elapsed_time", value);
    position.elapsed_time = value.toDouble();
    model->load(model_archive);
    optimizer.load(optimizer_archive);
  } catch (const c10::Error& caught) {
    // torch goes on for a paragraph about what may have happened to the file.
    const std::string text = caught.what_without_backtrace();
    throw chainmail::InvalidArgument("cannot resume from " + path + ": " +
                                     text.substr(0, std::min(text.find(". "), text.find('\n'))));
  }
  // Module::load() takes over whatever shapes the file has.
  if (shapes_of(model) != expected) {
    throw chainmail::InvalidArgument("cannot resume from " + path +
                                     ": it holds a model of another shape; give the --unit that it "
                                     "was trained with");
  }
  return position;
}
