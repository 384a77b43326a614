// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/job/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace chainmail::launch {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({changed, d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest_of(const std::string& name, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string& candidate : known) {
    if (candidate.size() < 3 || name.size() < 3) continue;
    const std::size_t d = edit_distance(name, candidate);
    if (d >= best_distance) continue;
    best_distance = d;
    best = candidate;
  }
  return best;
}

}  // namespace chainmail::launch
