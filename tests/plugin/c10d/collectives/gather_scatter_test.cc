// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Operations of c10d that only move data, and what Work and Future say about them.

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <tuple>
#include <vector>

#include "tests/plugin/c10d/job_group.h"

namespace chainmail::internal {
namespace {

// Different for every rank and place.
at::Tensor data_of(int rank, at::IntArrayRef shape, at::ScalarType type = at::kInt) {
  return (torch::arange(c10::multiply_integers(shape), at::kLong) + 100 * rank)
      .view(shape)
      .to(type);
}

TEST(Broadcast, EveryRootAndAnyType) {
  const auto group = make_group();
  for (int root = 0; root < job().size; ++root) {
    for (const auto type : {at::kFloat, at::kLong, at::kBool, at::kComplexDouble}) {
      std::vector<at::Tensor> tensors{data_of(job().rank, {3, 4}, type).t()};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      group->broadcast(tensors, options)->wait();
      EXPECT_TRUE(at::equal(tensors[0], data_of(root, {3, 4}, type).t())) << root << type;
    }
  }
}

TEST(AllGather, ListBaseAndCoalesced) {
  const auto group = make_group();
  const std::int64_t ranks = job().size;
  std::vector<at::Tensor> inputs{data_of(job().rank, {2, 3})};
  std::vector<std::vector<at::Tensor>> lists(1);
  for (int rank = 0; rank < ranks; ++rank) lists[0].push_back(torch::empty({2, 3}, at::kInt));
  group->allgather(lists, inputs)->wait();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(at::equal(lists[0][static_cast<std::size_t>(rank)], data_of(rank, {2, 3})));
  }

  at::Tensor output = torch::empty({ranks * 2, 3}, at::kInt);
  group->_allgather_base(output, inputs[0])->wait();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(at::equal(output.narrow(0, rank * std::int64_t{2}, 2), data_of(rank, {2, 3})));
  }

  std::vector<at::Tensor> two_inputs{inputs[0], data_of(job().rank, {1})};
  std::vector<at::Tensor> two{torch::empty({ranks * 2, 3}, at::kInt),
                              torch::empty({ranks}, at::kInt)};
  group->allgather_into_tensor_coalesced(two, two_inputs)->wait();
  EXPECT_TRUE(at::equal(two[0], output));
  EXPECT_TRUE(at::equal(two[1], torch::arange(ranks, at::kInt) * 100));

  std::vector<std::vector<at::Tensor>> by_rank(static_cast<std::size_t>(ranks));
  for (auto& list : by_rank) list = {torch::empty({2, 3}, at::kInt), torch::empty({1}, at::kInt)};
  group->allgather_coalesced(by_rank, two_inputs)->wait();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& list = by_rank[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(at::equal(list[0], data_of(rank, {2, 3})));
    EXPECT_TRUE(at::equal(list[1], data_of(rank, {1})));
  }
}

TEST(GatherAndScatter, EveryRoot) {
  const auto group = make_group();
  for (int root = 0; root < job().size; ++root) {
    std::vector<at::Tensor> inputs{data_of(job().rank, {5})};
    std::vector<std::vector<at::Tensor>> gathered;
    std::vector<std::vector<at::Tensor>> parts;
    if (job().rank == root) {
      gathered.resize(1);
      parts.resize(1);
      for (int rank = 0; rank < job().size; ++rank) {
        gathered[0].push_back(torch::empty({5}, at::kInt));
        parts[0].push_back(data_of(rank + 7, {5}));
      }
    }
    c10d::GatherOptions gather;
    gather.rootRank = root;
    group->gather(gathered, inputs, gather)->wait();
    for (int rank = 0; job().rank == root && rank < job().size; ++rank) {
      EXPECT_TRUE(at::equal(gathered[0][static_cast<std::size_t>(rank)], data_of(rank, {5})));
    }
    std::vector<at::Tensor> outputs{torch::empty({5}, at::kInt)};
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    group->scatter(outputs, parts, scatter)->wait();
    EXPECT_TRUE(at::equal(outputs[0], data_of(job().rank + 7, {5})));
  }
}

TEST(AllToAll, EqualUnequalAndLists) {
  const auto group = make_group();
  const std::int64_t ranks = job().size;
  const std::int64_t me = job().rank;
  std::vector<std::int64_t> none;
  at::Tensor input = data_of(job().rank, {ranks, 2});
  at::Tensor output = torch::empty({ranks, 2}, at::kInt);
  group->alltoall_base(output, input, none, none)->wait();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(at::equal(output[rank], data_of(rank, {ranks, 2})[me]));
  }

  // Rank r sends r + 1 rows to everybody, so everybody gets s + 1 rows from rank s.
  std::vector<std::int64_t> sends(static_cast<std::size_t>(ranks), me + 1);
  std::vector<std::int64_t> receives;
  for (std::int64_t rank = 0; rank < ranks; ++rank) receives.push_back(rank + 1);
  at::Tensor rows = data_of(job().rank, {ranks * (me + 1), 3});
  at::Tensor got = torch::empty({ranks * (ranks + 1) / 2, 3}, at::kInt);
  group->alltoall_base(got, rows, receives, sends)->wait();
  std::int64_t start = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor want =
        data_of(rank, {ranks * (rank + 1), 3}).narrow(0, me * (rank + 1), rank + 1);
    EXPECT_TRUE(at::equal(got.narrow(0, start, rank + 1), want)) << "from " << rank;
    start += rank + 1;
  }

  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  for (int rank = 0; rank < ranks; ++rank) {
    from.push_back(torch::full({rank + 1}, 10.0 * static_cast<double>(me) + rank));
    to.push_back(torch::empty({me + 1}));
  }
  group->alltoall(to, from)->wait();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(at::equal(to[static_cast<std::size_t>(rank)],
                          torch::full({me + 1}, 10.0 * rank + static_cast<double>(me))));
  }
}

TEST(AllToAll, InputsAndOutputsHaveOneType) {
  const auto group = make_group();
  const auto ranks = static_cast<std::size_t>(job().size);
  const std::vector<at::Tensor> wide(ranks, torch::zeros({2}, at::kLong));
  const std::vector<at::Tensor> narrow(ranks, torch::zeros({2}, at::kByte));
  for (const auto& [from, to] : {std::tie(wide, narrow), std::tie(narrow, wide)}) {
    std::vector<at::Tensor> inputs = from;
    std::vector<at::Tensor> outputs = to;
    EXPECT_THROW(group->alltoall(outputs, inputs), c10::Error);
  }
  std::vector<std::int64_t> none;
  at::Tensor input = torch::zeros({job().size}, at::kLong);
  at::Tensor output = torch::zeros({job().size}, at::kByte);
  EXPECT_THROW(group->alltoall_base(output, input, none, none), c10::Error);
  group->barrier()->wait();  // the group is as good as before
}

TEST(AllToAll, AGroupOfOneComparesLengths) {
  if (job().size > 1) {
    GTEST_SKIP() << "needs one rank alone";
  }
  const auto group = make_group();
  std::vector<std::int64_t> none;
  at::Tensor input = torch::zeros({2});
  at::Tensor output = torch::full({4}, -1.0F);
  EXPECT_THROW(group->alltoall_base(output, input, none, none), c10::Error);
  EXPECT_THROW(group->alltoall_base(input, output, none, none), c10::Error);
  EXPECT_TRUE(at::equal(output, torch::full({4}, -1.0F)));
  std::vector<at::Tensor> inputs = {torch::zeros({2})};
  std::vector<at::Tensor> outputs = {torch::zeros({3})};
  EXPECT_THROW(group->alltoall(outputs, inputs), c10::Error);
  group->barrier()->wait();  // the group is as good as before
}

TEST(SendAndReceive, AroundTheRing) {
  if (job().size < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  const auto group = make_group();
  const int next = (job().rank + 1) % job().size;
  const int previous = (job().rank + job().size - 1) % job().size;
  std::vector<at::Tensor> out{data_of(job().rank, {300'000})};
  std::vector<at::Tensor> in{torch::empty({2, 300'000}, at::kInt).t().select(1, 1)};
  // A big send ends when it is received and operations of a group run in call order, so a ring in
  // which everybody sends first would stand still.
  if (job().rank % 2 == 0) {
    auto sending = group->send(out, next, 3);
    group->recv(in, previous, 3)->wait();
    sending->wait();
  } else {
    auto receiving = group->recv(in, previous, 3);
    group->send(out, next, 3)->wait();
    receiving->wait();
  }
  EXPECT_TRUE(at::equal(in[0], data_of(previous, {300'000})));
}

TEST(Work, FuturesCarryResultsAndRunCallbacks) {
  const auto group = make_group();
  std::vector<at::Tensor> tensors{torch::ones({1000, 2}).t()};
  auto work = group->allreduce(tensors);
  std::promise<double> sum;
  auto future = work->getFuture();
  auto doubled = future->then(
      [](c10::ivalue::Future& done) {
        return c10::IValue(2 * done.value().toTensorVector()[0].sum().item<double>());
      },
      c10::FloatType::get());
  work->wait();
  doubled->wait();
  EXPECT_EQ(doubled->value().toDouble(), 4000.0 * job().size);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_EQ(work->exception(), nullptr);
  EXPECT_TRUE(work->result()[0].is_same(tensors[0]));
  EXPECT_TRUE(work->getFuture().get() == future.get());
}

TEST(Work, TensorsLiveUntilTheOperationIsDone) {
  const auto group = make_group();
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 50; ++i) {
    std::vector<at::Tensor> tensors{torch::ones({10'000})};
    group->allreduce(tensors);  // nobody keeps the Work
    if (i % 10 == 0) kept.push_back(tensors[0]);
  }
  group->barrier()->wait();
  for (const at::Tensor& tensor : kept) {
    EXPECT_TRUE(at::equal(tensor, torch::full({10'000}, static_cast<float>(job().size))));
  }
}

TEST(Work, SynchronousCallsReturnDone) {
  const auto group = make_group();
  std::vector<at::Tensor> tensors{torch::ones({4})};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  const auto work = group->allreduce(tensors, options);
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_EQ(tensors[0][3].item<float>(), static_cast<float>(job().size));
}

TEST(Group, OneNameAfterTheOther) {
  for (int round = 0; round < 3; ++round) {
    BackendOptions options;
    options.group_name = "same";
    const auto group = make_group(options);
    std::vector<at::Tensor> tensors{torch::full({3}, round + 1.0)};
    group->allreduce(tensors)->wait();
    EXPECT_EQ(tensors[0][0].item<float>(), static_cast<float>((round + 1) * job().size));
    group->barrier()->wait();
  }
}

}  // namespace
}  // namespace chainmail::internal
