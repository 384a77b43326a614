// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "batches.h"

#include <algorithm>
#include <random>
#include <utility>

Batches::Batches(chainmail::ImageSet set, const std::vector<std::int64_t>& indices,
                 std::int64_t size, torch::Device device)
    : set_(std::move(set)),
      indices_(torch::tensor(indices, torch::kLong)),
      order_(indices_),
      size_(size) {
  set_.images = set_.images.flatten(1).to(device);
  set_.labels = set_.labels.to(device);
}

void Batches::shuffle(std::uint64_t seed) {
  order_ = indices_.clone();
  auto* const begin = order_.mutable_data_ptr<std::int64_t>();
  std::mt19937_64 generator(seed);
  std::shuffle(begin, begin + order_.numel(), generator);
}

Batch Batches::get(std::int64_t number) const {
  const std::int64_t begin = number * size_;
  const torch::Tensor picked =
      order_.narrow(0, begin, std::min(size_, order_.numel() - begin)).to(set_.images.device());
  return {set_.images.index_select(0, picked).to(torch::kFloat).mul_(1.0 / 255.0),
          set_.labels.index_select(0, picked).to(torch::kLong)};
}
