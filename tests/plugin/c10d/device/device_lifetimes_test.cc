// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory of operations on an accelerator: everything that one uses stays its own until its stream
// is done, whatever the caller drops and whichever stream waits. Two or three ranks on devices
// whose streams are held back until the caller's stream has written rubbish into all memory that it
// could get again.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <chainmail/error.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/plugin/c10d/device/late/late_world.h"

namespace chainmail::internal {
namespace {

using chainmail::testing::late_tensor;
using chainmail::testing::LateRank;
using chainmail::testing::LateWorld;
using chainmail::testing::now_in;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr std::int64_t kRows = 6;  // a multiple of 2 and 3
constexpr std::int64_t kColumns = 4;

/// Values of a rank, all different, as `rows` x 4.
at::Tensor values_of(int rank, std::int64_t rows = kRows) {
  return at::arange(rows * kColumns, at::kFloat).view({rows, kColumns}) +
         static_cast<float>(1000 * (rank + 1));
}

at::Tensor sum_of_ranks(int size) {
  at::Tensor sum = at::zeros({kRows, kColumns});
  for (int rank = 0; rank < size; ++rank) sum += values_of(rank);
  return sum;
}

/// On the rank's device: contiguous, or every second column of something wider, which has to be
/// packed.
at::Tensor make(const LateRank& rank, const at::Tensor& values, bool is_strided) {
  if (!is_strided) return late_tensor(values, rank.rank);
  const at::Tensor wide = at::zeros({values.size(0), values.size(1) * 2});
  wide.slice(1, 0, std::nullopt, 2).copy_(values);
  return late_tensor(wide, rank.rank).slice(1, 0, std::nullopt, 2);
}

at::Tensor nothing(const LateRank& rank, std::int64_t rows, bool is_strided) {
  return make(rank, at::full({rows, kColumns}, -1.0), is_strided);
}

at::Tensor part(const at::Tensor& values, int size, int index) {
  return values.chunk(size)[static_cast<std::size_t>(index)];
}

/// What a test looks at in the end.
struct Expected {
  at::Tensor tensor;
  at::Tensor values;
};

/// How the caller goes on after it has begun an operation.
enum class Then { kDropsTheWork, kWaitsElsewhere, kWaitsInVain, kIsInOrder };

struct Call {
  const LateRank& rank;
  int size;
  bool is_strided;
  bool is_async;
  std::vector<Expected>& expected;

  at::Tensor in(const at::Tensor& values) const { return make(rank, values, is_strided); }
  at::Tensor mine() const { return in(values_of(rank.rank)); }
  at::Tensor out(std::int64_t rows, const at::Tensor& result) const {
    expected.push_back({nothing(rank, rows, is_strided), result});
    return expected.back().tensor;
  }
  at::Tensor in_place(const at::Tensor& values, const at::Tensor& result) const {
    expected.push_back({in(values), result});
    return expected.back().tensor;
  }
  template <typename Options>
  Options how() const {
    Options options;
    options.asyncOp = is_async;
    return options;
  }
};

struct Operation {
  const char* name;
  std::function<WorkPtr(const Call&)> begin;
  bool has_sync = true;
};

WorkPtr all_to_all(const Call& call) {
  Tensors inputs;
  Tensors outputs;
  for (int r = 0; r < call.size; ++r) {
    inputs.push_back(call.in(part(values_of(call.rank.rank), call.size, r)));
    const at::Tensor result = part(values_of(r), call.size, call.rank.rank);
    outputs.push_back(call.out(result.size(0), result));
  }
  return call.rank.backend.alltoall(outputs, inputs, call.how<c10d::AllToAllOptions>());
}

WorkPtr all_to_all_base(const Call& call) {
  std::vector<at::Tensor> parts;
  for (int r = 0; r < call.size; ++r) {
    parts.push_back(part(values_of(r), call.size, call.rank.rank));
  }
  at::Tensor input = call.mine();
  at::Tensor output = call.out(kRows, at::cat(parts));
  std::vector<std::int64_t> even;
  return call.rank.backend.alltoall_base(output, input, even, even,
                                         call.how<c10d::AllToAllOptions>());
}

WorkPtr gather(const Call& call) {
  Tensors inputs{call.mine()};
  std::vector<Tensors> outputs;
  if (call.rank.rank == 0) {
    outputs.emplace_back();
    for (int r = 0; r < call.size; ++r) outputs[0].push_back(call.out(kRows, values_of(r)));
  }
  return call.rank.backend.gather(outputs, inputs, call.how<c10d::GatherOptions>());
}

WorkPtr scatter(const Call& call) {
  std::vector<Tensors> inputs;
  if (call.rank.rank == 0) {
    inputs.emplace_back();
    for (int r = 0; r < call.size; ++r) inputs[0].push_back(call.in(values_of(r)));
  }
  Tensors outputs{call.out(kRows, values_of(call.rank.rank))};
  return call.rank.backend.scatter(outputs, inputs, call.how<c10d::ScatterOptions>());
}

WorkPtr all_gather(const Call& call) {
  Tensors inputs{call.mine()};
  std::vector<Tensors> outputs(1);
  for (int r = 0; r < call.size; ++r) outputs[0].push_back(call.out(kRows, values_of(r)));
  return call.rank.backend.allgather(outputs, inputs, call.how<c10d::AllgatherOptions>());
}

WorkPtr all_gather_lists(const Call& call) {
  Tensors inputs{call.mine(), call.mine()};
  std::vector<Tensors> outputs(2);
  for (Tensors& list : outputs) {
    for (int r = 0; r < call.size; ++r) {
      for (int copy = 0; copy < 2; ++copy) list.push_back(call.out(kRows, values_of(r)));
    }
  }
  return call.rank.backend.allgather(outputs, inputs, call.how<c10d::AllgatherOptions>());
}

WorkPtr all_gather_base(const Call& call) {
  Tensors parts;
  for (int r = 0; r < call.size; ++r) parts.push_back(values_of(r));
  at::Tensor input = call.mine();
  at::Tensor output = call.out(kRows * call.size, at::cat(parts));
  return call.rank.backend._allgather_base(output, input, call.how<c10d::AllgatherOptions>());
}

WorkPtr reduce_scatter(const Call& call) {
  std::vector<Tensors> inputs(1);
  for (int r = 0; r < call.size; ++r) {
    inputs[0].push_back(call.in(part(values_of(call.rank.rank), call.size, r)));
  }
  const at::Tensor result = part(sum_of_ranks(call.size), call.size, call.rank.rank);
  Tensors outputs{call.out(result.size(0), result)};
  return call.rank.backend.reduce_scatter(outputs, inputs, call.how<c10d::ReduceScatterOptions>());
}

WorkPtr reduce_scatter_base(const Call& call) {
  const at::Tensor result = part(sum_of_ranks(call.size), call.size, call.rank.rank);
  at::Tensor input = call.mine();
  at::Tensor output = call.out(result.size(0), result);
  return call.rank.backend._reduce_scatter_base(output, input,
                                                call.how<c10d::ReduceScatterOptions>());
}

WorkPtr reduce_scatter_coalesced(const Call& call) {
  const at::Tensor result = part(sum_of_ranks(call.size), call.size, call.rank.rank);
  Tensors inputs{call.mine(), call.mine()};
  Tensors outputs{call.out(result.size(0), result), call.out(result.size(0), result)};
  return call.rank.backend.reduce_scatter_tensor_coalesced(outputs, inputs,
                                                           call.how<c10d::ReduceScatterOptions>());
}

WorkPtr send_or_receive(const Call& call) {
  const int rank = call.rank.rank;
  if (rank == 0) {
    Tensors sent{call.mine()};
    return call.rank.backend.send(sent, 1, 0);
  }
  if (rank > 1) return nullptr;
  Tensors received{call.out(kRows, values_of(0))};
  return call.rank.backend.recv(received, 0, 0);
}

WorkPtr batch(const Call& call) {
  const int size = call.size;
  Tensors sent{call.mine()};
  Tensors received{call.out(kRows, values_of((call.rank.rank + size - 1) % size))};
  call.rank.backend.startCoalescing();
  call.rank.backend.send(sent, (call.rank.rank + 1) % size, 0);
  call.rank.backend.recv(received, (call.rank.rank + size - 1) % size, 0);
  return call.rank.backend.endCoalescing();
}

std::vector<Operation> operations() {
  return {
      {"allreduce",
       [](const Call& call) {
         Tensors tensors{call.in_place(values_of(call.rank.rank), sum_of_ranks(call.size))};
         return call.rank.backend.allreduce(tensors, call.how<c10d::AllreduceOptions>());
       }},
      {"allreduce_coalesced",
       [](const Call& call) {
         const at::Tensor mine = values_of(call.rank.rank);
         const at::Tensor sum = sum_of_ranks(call.size);
         Tensors tensors{call.in_place(mine, sum), call.in_place(mine, sum)};
         return call.rank.backend.allreduce_coalesced(tensors,
                                                      call.how<c10d::AllreduceCoalescedOptions>());
       }},
      {"reduce",
       [](const Call& call) {
         const at::Tensor mine = values_of(call.rank.rank);
         Tensors tensors{call.in_place(mine, call.rank.rank == 0 ? sum_of_ranks(call.size) : mine)};
         return call.rank.backend.reduce(tensors, call.how<c10d::ReduceOptions>());
       }},
      {"broadcast",
       [](const Call& call) {
         Tensors tensors{call.in_place(values_of(call.rank.rank), values_of(0))};
         return call.rank.backend.broadcast(tensors, call.how<c10d::BroadcastOptions>());
       }},
      {"reduce_scatter", reduce_scatter},
      {"_reduce_scatter_base", reduce_scatter_base},
      {"reduce_scatter_tensor_coalesced", reduce_scatter_coalesced},
      {"allgather", all_gather},
      {"allgather of lists", all_gather_lists},
      {"_allgather_base", all_gather_base},
      {"gather", gather},
      {"scatter", scatter},
      {"alltoall", all_to_all},
      {"alltoall_base", all_to_all_base},
      {"send and recv", send_or_receive, false},
      {"batch", batch, false},
  };
}

/// Takes all memory that the current stream of the device can have by now and writes to it.
Tensors take_free_memory(const LateRank& rank) {
  Tensors taken;
  for (const std::int64_t rows : {kRows / 3, kRows / 2, kRows, 2 * kRows, 3 * kRows, 6 * kRows}) {
    for (int i = 0; i < 24; ++i) taken.push_back(nothing(rank, rows, false));
  }
  return taken;
}

void go_on(const LateRank& rank, Then then, WorkPtr work) {
  switch (then) {
    case Then::kDropsTheWork:
    case Then::kIsInOrder:
      return;
    case Then::kWaitsElsewhere: {
      if (!work) return;
      const c10::impl::VirtualGuardImpl devices(rank.device.type());
      const c10::StreamGuard on(devices.getStreamFromGlobalPool(rank.device));
      work->wait();
      return;
    }
    case Then::kWaitsInVain:
      if (!work) return;
      EXPECT_THROW(work->wait(std::chrono::milliseconds{1}), TimeoutError);
      return;
  }
}

class Lifetimes : public ::testing::TestWithParam<int> {
 protected:
  static void check(const Operation& operation, int size, bool is_strided, Then then) {
    const std::string title = std::string(operation.name) + (is_strided ? ", strided" : ", dense");
    LateWorld world(size);
    world.run([&](LateRank& rank) {
      world.machine().prefer(chainmail::testing::default_stream(rank.rank));
      std::vector<Expected> warm;  // all communicators are there, and some memory is free
      const Call before{rank, size, is_strided, true, warm};
      if (const WorkPtr work = operation.begin(before)) work->wait(std::chrono::seconds{20});
      warm.clear();
      rank.meet();
      world.machine().hold_back();
      rank.meet();

      std::vector<Expected> expected;
      Tensors taken;
      {
        const Call call{rank, size, is_strided, then != Then::kIsInOrder, expected};
        go_on(rank, then, operation.begin(call));
        taken = take_free_memory(rank);
      }
      rank.meet();
      world.machine().let_go();
      // A second one ends after the first.
      const WorkPtr last = operation.begin({rank, size, false, true, warm});
      if (last) last->wait(std::chrono::seconds{20});
      rank.meet();
      for (const Expected& one : expected) {
        EXPECT_TRUE(at::equal(now_in(one.tensor), one.values))
            << title << ": rank " << rank.rank << " has\n"
            << now_in(one.tensor) << "\nin the place of\n"
            << one.values;
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Lifetimes, ::testing::Values(2, 3));

TEST_P(Lifetimes, ADroppedWorkKeepsItsMemory) {
  for (const Operation& operation : operations()) {
    for (const bool is_strided : {false, true}) {
      check(operation, GetParam(), is_strided, Then::kDropsTheWork);
    }
  }
}

TEST_P(Lifetimes, AnotherStreamMayWait) {
  for (const Operation& operation : operations()) {
    for (const bool is_strided : {false, true}) {
      check(operation, GetParam(), is_strided, Then::kWaitsElsewhere);
    }
  }
}

TEST_P(Lifetimes, AWaitMayEndTooEarly) {
  for (const Operation& operation : operations()) {
    for (const bool is_strided : {false, true}) {
      check(operation, GetParam(), is_strided, Then::kWaitsInVain);
    }
  }
}

TEST_P(Lifetimes, SynchronousCallsAreInOrder) {
  for (const Operation& operation : operations()) {
    if (!operation.has_sync) continue;
    for (const bool is_strided : {false, true}) {
      check(operation, GetParam(), is_strided, Then::kIsInOrder);
    }
  }
}

// On a stream that is not the one that the memory was made for, which torch asks its users to tell
// the allocator; here they need not.
TEST(SynchronousLifetimes, OnAnotherStreamThanTheMemorys) {
  LateWorld world(2);
  world.run([&](LateRank& rank) {
    const c10::impl::VirtualGuardImpl devices(rank.device.type());
    const c10::Stream other = devices.getStreamFromGlobalPool(rank.device);
    world.machine().prefer(chainmail::testing::default_stream(rank.rank));
    at::Tensor output = nothing(rank, 2 * kRows, false);
    for (int round = 0; round < 2; ++round) {
      at::Tensor input = make(rank, values_of(rank.rank), false);
      c10::Event ready(rank.device.type());
      ready.record(devices.getStream(rank.device));
      ready.block(other);
      rank.meet();
      if (round == 1) world.machine().hold_back();
      rank.meet();
      c10d::AllgatherOptions options;
      options.asyncOp = false;
      {
        const c10::StreamGuard on(other);
        rank.backend._allgather_base(output, input, options);
      }
      input.reset();
      const Tensors taken = take_free_memory(rank);
      rank.meet();
      world.machine().let_go();
      c10::Event end(rank.device.type());
      end.record(other);
      while (!end.query()) std::this_thread::yield();
    }
    EXPECT_TRUE(at::equal(now_in(output), at::cat({values_of(0), values_of(1)})));
  });
}

}  // namespace
}  // namespace chainmail::internal
