// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Operations are about elements in order: ranks may give the same number of them in different
// shapes, as torch's own backends allow.

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using Shape = std::vector<std::int64_t>;

class ShapesTest : public ::testing::TestWithParam<std::vector<Shape>> {
 protected:
  // The rank's values in the shape that it prefers; `turn` moves the choice on.
  static at::Tensor values(int rank, int turn = 0) {
    return (torch::arange(count(), at::kFloat) + 10 * rank).view(shape(rank + turn));
  }
  static at::Tensor room(int turn = 0) { return torch::zeros(shape(job().rank + turn)); }
  static Shape shape(int choice) {
    return GetParam()[static_cast<std::size_t>(choice) % GetParam().size()];
  }
  static std::int64_t count() { return c10::multiply_integers(GetParam()[0]); }

  static void expect(const at::Tensor& actual, const at::Tensor& expected) {
    EXPECT_TRUE(at::equal(actual.flatten(), expected.flatten())) << actual << expected;
  }
  static at::Tensor sum() {
    at::Tensor total = torch::zeros({count()});
    for (int rank = 0; rank < job().size; ++rank) total += values(rank).flatten();
    return total;
  }
  // What all ranks have, one after the other.
  static at::Tensor all() {
    Tensors parts;
    for (int rank = 0; rank < job().size; ++rank) parts.push_back(values(rank).flatten());
    return at::cat(parts);
  }
  static Tensors rooms() {
    Tensors list;
    for (int rank = 0; rank < job().size; ++rank) list.push_back(room());
    return list;
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group_ = make_group(named());
  static BackendOptions named() {
    BackendOptions options;
    options.group_name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return options;
  }
};

TEST_P(ShapesTest, Reductions) {
  Tensors tensors{values(job().rank)};
  group_->allreduce(tensors)->wait();
  expect(tensors[0], sum());
  EXPECT_EQ(tensors[0].sizes(), at::IntArrayRef(shape(job().rank)));

  tensors = {values(job().rank)};
  group_->reduce(tensors)->wait();
  expect(tensors[0], job().rank == 0 ? sum() : values(job().rank));

  std::vector<Tensors> lists(1);
  for (int rank = 0; rank < job().size; ++rank) lists[0].push_back(values(rank, job().rank));
  tensors = {room()};
  for (at::Tensor& part : lists[0]) part = part.reshape(shape(job().rank));
  group_->reduce_scatter(tensors, lists)->wait();
  expect(tensors[0], values(job().rank) * job().size);
}

TEST_P(ShapesTest, Lists) {
  // Tensor by tensor as many elements.
  Tensors tensors{values(job().rank), values(job().rank, 1)};
  group_->getBackend(c10::kCPU)->allreduce_coalesced(tensors)->wait();
  expect(tensors[0], sum());
  expect(tensors[1], sum());
}

TEST_P(ShapesTest, Movements) {
  Tensors tensors{values(job().rank)};
  group_->broadcast(tensors)->wait();
  expect(tensors[0], values(0));

  Tensors inputs{values(job().rank)};
  std::vector<Tensors> lists{rooms()};
  group_->allgather(lists, inputs)->wait();
  expect(at::stack(lists[0]), all());
  at::Tensor gathered = torch::zeros({job().size * count()});
  group_->_allgather_base(gathered, inputs[0])->wait();
  expect(gathered, all());

  lists = {rooms()};
  if (job().rank != 0) lists.clear();
  group_->gather(lists, inputs)->wait();
  if (job().rank == 0) expect(at::stack(lists[0]), all());

  lists.clear();
  if (job().rank == 0) {
    lists.emplace_back();
    for (int rank = 0; rank < job().size; ++rank) {
      lists[0].push_back(values(rank).reshape(shape(0)));
    }
  }
  tensors = {room()};
  group_->scatter(tensors, lists)->wait();
  expect(tensors[0], values(job().rank));
}

TEST_P(ShapesTest, TransfersEvenOfOtherTypes) {
  if (job().rank > 1) return;
  const auto backend = group_->getBackend(c10::kCPU);
  Tensors tensors{job().rank == 0 ? values(0) : torch::zeros({count() * 4}, at::kByte)};
  (job().rank == 0 ? backend->send(tensors, 1, 0) : backend->recv(tensors, 0, 0))->wait();
  if (job().rank == 1) expect(tensors[0].view(at::kFloat), values(0));
}

INSTANTIATE_TEST_SUITE_P(Counts, ShapesTest,
                         ::testing::Values(std::vector<Shape>{{4}, {2, 2}, {1, 4}},
                                           std::vector<Shape>{{1}, {}, {1, 1, 1}},
                                           std::vector<Shape>{{600, 500}, {300'000}, {500, 600}}));

}  // namespace
}  // namespace chainmail::internal
