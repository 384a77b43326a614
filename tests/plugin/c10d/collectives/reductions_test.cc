// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// allreduce, reduce and reduce_scatter through c10d, against values that every rank can compute.

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "tests/plugin/c10d/collectives/premul_sum.h"
#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

using c10d::ReduceOp;

constexpr at::ScalarType kTypes[] = {at::kByte, at::kChar,  at::kShort,    at::kInt,   at::kLong,
                                     at::kHalf, at::kFloat, at::kBFloat16, at::kDouble};

// Small integers, different on every rank, so that every type holds every result exactly.
at::Tensor contribution(int rank, at::IntArrayRef shape, at::ScalarType type) {
  const auto count = c10::multiply_integers(shape);
  return (torch::arange(count, at::kLong) % 5 + rank + 1).view(shape).to(type);
}

at::Tensor expected(const ReduceOp& op, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor result = contribution(0, shape, at::kLong);
  for (int rank = 1; rank < job().size; ++rank) {
    const at::Tensor next = contribution(rank, shape, at::kLong);
    switch (static_cast<ReduceOp::RedOpType>(op)) {
      case ReduceOp::PRODUCT:
        result = result * next;
        break;
      case ReduceOp::MIN:
        result = torch::minimum(result, next);
        break;
      case ReduceOp::MAX:
        result = torch::maximum(result, next);
        break;
      case ReduceOp::BAND:
        result = result.bitwise_and(next);
        break;
      case ReduceOp::BOR:
        result = result.bitwise_or(next);
        break;
      case ReduceOp::BXOR:
        result = result.bitwise_xor(next);
        break;
      default:
        result = result + next;
    }
  }
  if (op.op_ == ReduceOp::AVG) {
    return at::isIntegralType(type, true) ? result.div(job().size, "trunc").to(type)
                                          : result.to(at::kDouble).div(job().size).to(type);
  }
  return result.to(type);
}

void all_reduce(c10d::ProcessGroup& group, std::vector<at::Tensor> tensors,
                const ReduceOp& op = ReduceOp::SUM) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group.allreduce(tensors, options)->wait();
}

TEST(AllReduce, EveryTypeAndOperation) {
  const auto group = make_group();
  for (const at::ScalarType type : kTypes) {
    for (const auto op : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MIN,
                          ReduceOp::MAX, ReduceOp::BAND, ReduceOp::BOR, ReduceOp::BXOR}) {
      const bool is_bitwise = op >= ReduceOp::BAND;
      if (is_bitwise && !at::isIntegralType(type, true)) continue;
      if (op == ReduceOp::PRODUCT && at::elementSize(type) == 1) continue;  // would overflow
      at::Tensor tensor = contribution(job().rank, {3, 7}, type);
      all_reduce(*group, {tensor}, op);
      const at::Tensor want = expected(op, {3, 7}, type);
      // An average may be rounded in another order.
      EXPECT_TRUE(op == ReduceOp::AVG
                      ? at::allclose(tensor.to(at::kDouble), want.to(at::kDouble), 1e-2, 1e-2)
                      : at::equal(tensor, want))
          << type << " op " << static_cast<int>(op) << "\n"
          << tensor << "\n"
          << want;
    }
  }
}

TEST(AllReduce, BoolIsOrAndAnd) {
  const auto group = make_group();
  at::Tensor any = torch::tensor({job().rank == 0, false, true});
  at::Tensor all = any.clone();
  all_reduce(*group, {any}, ReduceOp::BOR);
  all_reduce(*group, {all}, ReduceOp::BAND);
  EXPECT_TRUE(at::equal(any, torch::tensor({true, false, true})));
  EXPECT_TRUE(at::equal(all, torch::tensor({job().size == 1, false, true})));
}

TEST(AllReduce, ComplexNumbersAddUp) {
  const auto group = make_group();
  at::Tensor tensor = torch::complex(torch::ones({4}), torch::full({4}, job().rank + 1.0));
  all_reduce(*group, {tensor});
  const float ranks = static_cast<float>(job().size);
  EXPECT_TRUE(at::equal(at::real(tensor), torch::full({4}, ranks)));
  EXPECT_TRUE(at::equal(at::imag(tensor), torch::full({4}, ranks * (ranks + 1) / 2)));
}

TEST(AllReduce, EverySize) {
  const auto group = make_group();
  for (const std::int64_t count : {0L, 1L, 2L, 31L, 1000L, 65537L, 3L << 20U}) {
    at::Tensor tensor = contribution(job().rank, {count}, at::kFloat);
    all_reduce(*group, {tensor});
    EXPECT_TRUE(at::equal(tensor, expected(ReduceOp::SUM, {count}, at::kFloat))) << count;
  }
}

TEST(AllReduce, StridesAndShapesOfAllKinds) {
  const auto group = make_group();
  const at::Tensor base = contribution(job().rank, {6, 8}, at::kFloat);
  const at::Tensor want = expected(ReduceOp::SUM, {6, 8}, at::kFloat);
  at::Tensor transposed = base.t().clone().t();
  all_reduce(*group, {transposed});
  EXPECT_TRUE(at::equal(transposed, want));

  at::Tensor wide = torch::zeros({6, 16});
  at::Tensor column = wide.slice(1, 0, 16, 2);
  column.copy_(base);
  all_reduce(*group, {column});
  EXPECT_TRUE(at::equal(column, want));
  EXPECT_EQ(wide.slice(1, 1, 16, 2).abs().sum().item<float>(), 0.0F) << "wrote between elements";

  at::Tensor scalar = torch::tensor(2.5F);
  all_reduce(*group, {scalar});
  EXPECT_EQ(scalar.item<float>(), 2.5F * static_cast<float>(job().size));
  EXPECT_EQ(scalar.dim(), 0);
}

TEST(AllReduce, AListGoesAsOne) {
  const auto group = make_group();
  std::vector<at::Tensor> tensors{contribution(job().rank, {3}, at::kFloat),
                                  contribution(job().rank, {2, 5}, at::kFloat).t(),
                                  torch::empty({0}), torch::tensor(1.0F)};
  auto work = group->allreduce_coalesced(tensors);
  work->wait();
  EXPECT_TRUE(at::equal(tensors[0], expected(ReduceOp::SUM, {3}, at::kFloat)));
  EXPECT_TRUE(at::equal(tensors[1], expected(ReduceOp::SUM, {2, 5}, at::kFloat).t()));
  EXPECT_EQ(tensors[3].item<float>(), static_cast<float>(job().size));
}

TEST(AllReduce, MultipliesBeforeSumming) {
  const auto group = make_group();
  at::Tensor tensor = torch::full({5}, job().rank + 1.0);
  all_reduce(*group, {tensor}, make_premul_sum(0.5));
  const float ranks = static_cast<float>(job().size);
  EXPECT_TRUE(at::equal(tensor, torch::full({5}, 0.5F * ranks * (ranks + 1) / 2)));
}

TEST(AllReduce, AlgorithmsAgree) {
  for (const std::string algorithm :
       {"auto", "naive", "flat", "hierarchical", "two_dimensional", "single_node"}) {
    BackendOptions options;
    options.algorithm = algorithm;
    options.group_name = "algorithm-" + algorithm;
    const auto group = make_group(options);
    at::Tensor tensor = contribution(job().rank, {1000}, at::kFloat);
    all_reduce(*group, {tensor});
    EXPECT_TRUE(at::equal(tensor, expected(ReduceOp::SUM, {1000}, at::kFloat))) << algorithm;
  }
}

TEST(AllReduce, AcrossPretendedNodes) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  BackendOptions options;
  options.wire = "float16";
  for (int rank = 0; rank < job().size; ++rank) {
    options.node_ids.push_back(rank < (job().size + 1) / 2 ? "left" : "right");
  }
  const auto group = make_group(options);
  at::Tensor tensor = contribution(job().rank, {70'000}, at::kFloat);
  all_reduce(*group, {tensor}, ReduceOp::AVG);
  EXPECT_TRUE(at::allclose(tensor, expected(ReduceOp::AVG, {70'000}, at::kFloat), 1e-3, 1e-3));
}

TEST(AllReduce, RefusesWhatItCannotDo) {
  const auto group = make_group();
  std::vector<at::Tensor> mixed{torch::ones({2}), torch::ones({2}, at::kDouble)};
  EXPECT_THROW(group->allreduce_coalesced(mixed), c10::Error);
  EXPECT_THROW(all_reduce(*group, {torch::ones({3})}, ReduceOp::BAND), c10::Error);
  EXPECT_THROW(all_reduce(*group, {torch::ones({1}).expand({4})}), c10::Error);
  EXPECT_THROW(all_reduce(*group, {torch::ones({3, 3}).to_sparse_csr()}), c10::Error);
  std::vector<at::Tensor> sparse{torch::ones({3, 3}).to_sparse()};
  EXPECT_THROW(all_reduce(*group, sparse, ReduceOp::MAX), c10::Error);
  EXPECT_THROW(group->getBackend(c10::kCPU)->reduce(sparse), c10::Error);
  EXPECT_THROW(all_reduce(*group, {torch::ones({2}), torch::ones({2})}, ReduceOp::AVG), c10::Error);
  at::Tensor fine = torch::ones({3});
  all_reduce(*group, {fine});  // the group lives
  EXPECT_EQ(fine[0].item<float>(), static_cast<float>(job().size));
}

TEST(Reduce, OnlyTheRootChanges) {
  const auto group = make_group();
  for (int root = 0; root < job().size; ++root) {
    std::vector<at::Tensor> tensors{contribution(job().rank, {4, 5}, at::kInt)};
    c10d::ReduceOptions options;
    options.rootRank = root;
    group->reduce(tensors, options)->wait();
    EXPECT_TRUE(at::equal(tensors[0], job().rank == root
                                          ? expected(ReduceOp::SUM, {4, 5}, at::kInt)
                                          : contribution(job().rank, {4, 5}, at::kInt)))
        << "root " << root;
  }
}

TEST(ReduceScatter, PartsOfDifferentLengths) {
  const auto group = make_group();
  // Rank 1's part is empty; the parts are neither packed nor of one shape.
  const auto part_of = [](int from, int to) {
    return contribution(from, {2, to == 1 ? 0 : to + 3}, at::kFloat).t();
  };
  for (const auto& [kind, divisor] :
       {std::pair(ReduceOp::SUM, 1), std::pair(ReduceOp::AVG, job().size)}) {
    std::vector<std::vector<at::Tensor>> lists(1);
    at::Tensor want = torch::zeros(part_of(0, job().rank).sizes());
    for (int rank = 0; rank < job().size; ++rank) {
      lists[0].push_back(part_of(job().rank, rank));
      want += part_of(rank, job().rank);
    }
    const std::vector<at::Tensor> before = [&] {
      std::vector<at::Tensor> copies;
      for (const at::Tensor& part : lists[0]) copies.push_back(part.clone());
      return copies;
    }();
    std::vector<at::Tensor> outputs{torch::full({want.size(0), 4}, -1.0F).slice(1, 0, 4, 2)};
    c10d::ReduceScatterOptions options;
    options.reduceOp = kind;
    group->reduce_scatter(outputs, lists, options)->wait();
    EXPECT_TRUE(at::allclose(outputs[0], want / divisor)) << outputs[0] << want;
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(at::equal(lists[0][i], before[i])) << "input " << i << " changed";
    }
    outputs[0] = torch::empty({want.size(0) + 1, 2});
    if (job().size > 1) {
      EXPECT_THROW(group->reduce_scatter(outputs, lists, options), c10::Error);
    }
  }
}

TEST(ReduceScatter, ListBaseAndCoalesced) {
  const auto group = make_group();
  const std::int64_t ranks = job().size;
  const at::Tensor input = contribution(job().rank, {ranks * 3, 2}, at::kFloat);
  const at::Tensor want = expected(ReduceOp::SUM, {ranks * 3, 2}, at::kFloat)
                              .narrow(0, job().rank * std::int64_t{3}, 3);

  std::vector<at::Tensor> outputs{torch::empty({3, 2})};
  std::vector<std::vector<at::Tensor>> lists{input.chunk(ranks, 0)};
  group->reduce_scatter(outputs, lists)->wait();
  EXPECT_TRUE(at::equal(outputs[0], want));

  at::Tensor output = torch::empty({2, 3}).t();
  at::Tensor flat = input.clone();
  group->_reduce_scatter_base(output, flat)->wait();
  EXPECT_TRUE(at::equal(output, want));
  EXPECT_TRUE(at::equal(flat, input)) << "the input changed";

  std::vector<at::Tensor> two{torch::empty({3, 2}), torch::empty({1})};
  std::vector<at::Tensor> inputs{input, contribution(job().rank, {ranks}, at::kFloat)};
  group->reduce_scatter_tensor_coalesced(two, inputs)->wait();
  EXPECT_TRUE(at::equal(two[0], want));
  EXPECT_EQ(two[1].item<float>(),
            expected(ReduceOp::SUM, {ranks}, at::kFloat)[job().rank].item<float>());
}

}  // namespace
}  // namespace chainmail::internal
