// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/export/shell_variables.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/values/pattern_checks.h"

namespace chainmail::launch {
namespace {

// The launcher's, which sets them for each rank.
bool is_of_ranks(const std::string& name) {
  return is_rank_variable(name) || name == "MASTER_ADDR" || name == "MASTER_PORT" ||
         name.starts_with("CHAINMAIL_");
}

// Depth first, without the stack: a file may have as many variables as a MiB holds.
class Sorter {
 public:
  explicit Sorter(std::vector<ShellVariable> variables) : variables_(std::move(variables)) {
    for (std::size_t i = 0; i < variables_.size(); ++i) places_.emplace(variables_[i].name, i);
    next_.resize(variables_.size());
    is_begun_.resize(variables_.size());
  }

  std::vector<ShellVariable> sorted() {
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      begin(i);
      while (!ahead_.empty()) advance();
    }
    std::vector<ShellVariable> out;
    out.reserve(order_.size());
    for (const std::size_t i : order_) out.push_back(std::move(variables_[i]));
    return out;
  }

 private:
  void begin(std::size_t variable) {
    if (is_begun_[variable]) return;
    is_begun_[variable] = true;
    ahead_.push_back(variable);
  }

  void advance() {
    const std::size_t current = ahead_.back();
    ShellVariable& variable = variables_[current];
    if (next_[current] < variable.names.size()) {
      const auto found = places_.find(variable.names[next_[current]++]);
      if (found != places_.end()) begin(found->second);
      return;
    }
    for (const std::string& name : variable.names) {
      const auto found = places_.find(name);
      variable.is_of_host =
          variable.is_of_host ||
          (found == places_.end() ? is_of_ranks(name) : variables_[found->second].is_of_host);
    }
    order_.push_back(current);
    ahead_.pop_back();
  }

  std::vector<ShellVariable> variables_;
  std::map<std::string, std::size_t> places_;
  std::vector<std::size_t> next_;  // of each variable's names
  std::vector<bool> is_begun_;
  std::vector<std::size_t> ahead_;
  std::vector<std::size_t> order_;
};

}  // namespace

std::vector<ShellVariable> in_order(std::vector<ShellVariable> variables) {
  return Sorter(std::move(variables)).sorted();
}

bool is_of_host(std::span<const std::string> names, std::span<const ShellVariable> variables) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto found =
        std::find_if(variables.begin(), variables.end(),
                     [&](const ShellVariable& variable) { return variable.name == name; });
    return found == variables.end() ? is_of_ranks(name) : found->is_of_host;
  });
}

std::vector<std::string> variables_in(const std::string& pattern) {
  std::vector<std::string> names = names_in(pattern);
  for (std::string& name : names) name = variable_of(name);
  return names;
}

}  // namespace chainmail::launch
