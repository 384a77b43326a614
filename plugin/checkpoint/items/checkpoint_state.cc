// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <ATen/ATen.h>
#include <chainmail/checkpoint.h>

#include <utility>

namespace chainmail {

namespace {

const CheckpointState::Value& find(const std::map<std::string, CheckpointState::Value>& values,
                                   const std::string& key) {
  const auto found = values.find(key);
  if (found == values.end()) throw CheckpointError("the checkpoint has no '" + key + "'");
  return found->second;
}

at::Tensor scalar_of(const CheckpointState& state, const std::string& key, c10::ScalarType type) {
  at::Tensor value = state.tensor(key);
  if (value.scalar_type() != type || value.dim() != 0) {
    throw CheckpointError("'" + key + "' in the checkpoint is no " +
                          (type == c10::kLong ? "integer" : "real number"));
  }
  return value;
}

}  // namespace

void CheckpointState::set_tensor(const std::string& key, at::Tensor value) {
  if (!value.defined()) {
    throw InvalidArgument("'" + key + "' is an undefined tensor, which cannot be saved");
  }
  values_[key] = std::move(value);
}

void CheckpointState::set_integer(const std::string& key, std::int64_t value) {
  values_[key] = at::scalar_tensor(value, c10::kLong);
}

void CheckpointState::set_real(const std::string& key, double value) {
  values_[key] = at::scalar_tensor(value, c10::kDouble);
}

void CheckpointState::set_text(const std::string& key, std::string value) {
  values_[key] = std::move(value);
}

at::Tensor CheckpointState::tensor(const std::string& key) const {
  const auto* const value = std::get_if<at::Tensor>(&find(values_, key));
  if (value == nullptr) throw CheckpointError("'" + key + "' in the checkpoint is no tensor");
  return *value;
}

std::int64_t CheckpointState::integer(const std::string& key) const {
  return scalar_of(*this, key, c10::kLong).item<std::int64_t>();
}

double CheckpointState::real(const std::string& key) const {
  return scalar_of(*this, key, c10::kDouble).item<double>();
}

std::string CheckpointState::text(const std::string& key) const {
  const auto* const value = std::get_if<std::string>(&find(values_, key));
  if (value == nullptr) throw CheckpointError("'" + key + "' in the checkpoint is no text");
  return *value;
}

}  // namespace chainmail
