// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every operation owns what it works on: callers may drop the Work, the inputs and the outputs
// while it is under way, or stop waiting for it. The last rank comes late; the others have dropped
// everything by then, and all tensors are of memory that goes with them.

#include <chainmail/error.h>
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/c10d/job_group.h"
#include "tests/plugin/c10d/ownership/guarded_memory.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// Large enough to take several steps of any way between ranks.
constexpr std::int64_t kRows = 96;
constexpr std::int64_t kColumns = 70;

/// Something of a rank; not contiguous when `is_strided`.
at::Tensor of_rank(int rank, bool is_strided, std::int64_t rows = kRows) {
  const at::Tensor values =
      (torch::arange(rows * kColumns, at::kLong) % 1000 + 10 * rank + 1).to(at::kFloat);
  const at::Tensor dense = values.view({rows, kColumns});
  return is_strided ? dense.t().contiguous().t() : dense.clone();
}

at::Tensor empty_like_rank(bool is_strided, std::int64_t rows = kRows) {
  return torch::full_like(of_rank(0, is_strided, rows), -1);
}

/// The tensors of a call, what starts it and what its outputs must be in the end.
struct Scenario {
  Tensors inputs;
  Tensors outputs;
  Tensors expected;  // empty: this rank gets nothing
  std::function<WorkPtr(c10d::Backend&, Scenario&)> start;
};

struct Case {
  std::string name;
  std::function<Scenario(bool is_strided, bool is_async)> make;
};

int size() { return job().size; }
int rank() { return job().rank; }
bool is_root() { return rank() == 0; }

at::Tensor sum_of_ranks(bool is_strided) {
  at::Tensor sum = of_rank(0, is_strided).clone();
  for (int other = 1; other < size(); ++other) sum += of_rank(other, is_strided);
  return sum;
}

Tensors all_ranks(bool is_strided) {
  Tensors all;
  for (int other = 0; other < size(); ++other) all.push_back(of_rank(other, is_strided));
  return all;
}

template <typename Options>
Options options_of(bool is_async) {
  Options options;
  options.asyncOp = is_async;
  return options;
}

Tensors empties(std::size_t count, bool is_strided) {
  Tensors all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(empty_like_rank(is_strided));
  return all;
}

std::vector<Case> reductions() {
  std::vector<Case> cases;
  cases.push_back({"allreduce", [](bool strided, bool async) {
                     return Scenario{{},
                                     {of_rank(rank(), strided)},
                                     {sum_of_ranks(strided)},
                                     [async](c10d::Backend& backend, Scenario& s) {
                                       return backend.allreduce(
                                           s.outputs, options_of<c10d::AllreduceOptions>(async));
                                     }};
                   }});
  cases.push_back({"allreduce_coalesced", [](bool strided, bool async) {
                     return Scenario{{},
                                     {of_rank(rank(), strided), of_rank(rank(), !strided)},
                                     {sum_of_ranks(strided), sum_of_ranks(!strided)},
                                     [async](c10d::Backend& backend, Scenario& s) {
                                       return backend.allreduce_coalesced(
                                           s.outputs,
                                           options_of<c10d::AllreduceCoalescedOptions>(async));
                                     }};
                   }});
  cases.push_back({"reduce", [](bool strided, bool async) {
                     Scenario s{{}, {of_rank(rank(), strided)}, {}, {}};
                     if (is_root()) s.expected = {sum_of_ranks(strided)};
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       return backend.reduce(call.outputs, options_of<c10d::ReduceOptions>(async));
                     };
                     return s;
                   }});
  cases.push_back({"reduce_scatter", [](bool strided, bool async) {
                     Scenario s{{}, {empty_like_rank(strided)}, {}, {}};
                     for (int other = 0; other < size(); ++other)
                       s.inputs.push_back(of_rank(other, strided));
                     s.expected = {of_rank(rank(), strided) * size()};
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       std::vector<Tensors> lists{call.inputs};
                       return backend.reduce_scatter(call.outputs, lists,
                                                     options_of<c10d::ReduceScatterOptions>(async));
                     };
                     return s;
                   }});
  cases.push_back(
      {"_reduce_scatter_base", [](bool strided, bool async) {
         Scenario s{{of_rank(0, strided, kRows * size())}, {empty_like_rank(strided)}, {}, {}};
         s.expected = {s.inputs[0].narrow(0, rank() * kRows, kRows).clone() * size()};
         s.start = [async](c10d::Backend& backend, Scenario& call) {
           return backend._reduce_scatter_base(call.outputs[0], call.inputs[0],
                                               options_of<c10d::ReduceScatterOptions>(async));
         };
         return s;
       }});
  cases.push_back(
      {"reduce_scatter_tensor_coalesced", [](bool strided, bool async) {
         Scenario s{{of_rank(0, strided, kRows * size()), of_rank(1, !strided, kRows * size())},
                    empties(2, strided),
                    {},
                    {}};
         for (const at::Tensor& input : s.inputs) {
           s.expected.push_back(input.narrow(0, rank() * kRows, kRows).clone() * size());
         }
         s.start = [async](c10d::Backend& backend, Scenario& call) {
           return backend.reduce_scatter_tensor_coalesced(
               call.outputs, call.inputs, options_of<c10d::ReduceScatterOptions>(async));
         };
         return s;
       }});
  cases.push_back({"allreduce_sparse", [](bool, bool async) {
                     const auto sparse = [](int of) {
                       return torch::sparse_coo_tensor(torch::tensor({{of, 7}}, at::kLong),
                                                       torch::full({2, 40}, 1.0 + of), {20, 40})
                           .coalesce();
                     };
                     at::Tensor sum = torch::zeros({20, 40});
                     for (int other = 0; other < size(); ++other) sum += sparse(other).to_dense();
                     return Scenario{
                         {}, {sparse(rank())}, {sum}, [async](c10d::Backend& backend, Scenario& s) {
                           return backend.allreduce(s.outputs,
                                                    options_of<c10d::AllreduceOptions>(async));
                         }};
                   }});
  return cases;
}

std::vector<Case> gathers() {
  std::vector<Case> cases;
  cases.push_back({"allgather", [](bool strided, bool async) {
                     return Scenario{{of_rank(rank(), strided)},
                                     empties(static_cast<std::size_t>(size()), strided),
                                     all_ranks(strided),
                                     [async](c10d::Backend& backend, Scenario& s) {
                                       std::vector<Tensors> lists{s.outputs};
                                       return backend.allgather(
                                           lists, s.inputs,
                                           options_of<c10d::AllgatherOptions>(async));
                                     }};
                   }});
  cases.push_back({"allgather of parts that differ", [](bool strided, bool async) {
                     Scenario s{{of_rank(rank(), strided, kRows + rank())}, {}, {}, {}};
                     for (int other = 0; other < size(); ++other) {
                       s.outputs.push_back(empty_like_rank(strided, kRows + other));
                       s.expected.push_back(of_rank(other, strided, kRows + other));
                     }
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       std::vector<Tensors> lists{call.outputs};
                       return backend.allgather(lists, call.inputs,
                                                options_of<c10d::AllgatherOptions>(async));
                     };
                     return s;
                   }});
  cases.push_back({"_allgather_base", [](bool strided, bool async) {
                     return Scenario{{of_rank(rank(), strided)},
                                     {empty_like_rank(strided, kRows * size())},
                                     {torch::cat(all_ranks(strided))},
                                     [async](c10d::Backend& backend, Scenario& s) {
                                       return backend._allgather_base(
                                           s.outputs[0], s.inputs[0],
                                           options_of<c10d::AllgatherOptions>(async));
                                     }};
                   }});
  cases.push_back(
      {"allgather_coalesced", [](bool strided, bool async) {
         Scenario s{{of_rank(rank(), strided), of_rank(rank() + 1, !strided)}, {}, {}, {}};
         for (int other = 0; other < size(); ++other) {
           s.outputs.push_back(empty_like_rank(strided));
           s.outputs.push_back(empty_like_rank(!strided));
           s.expected.push_back(of_rank(other, strided));
           s.expected.push_back(of_rank(other + 1, strided));
         }
         s.start = [async](c10d::Backend& backend, Scenario& call) {
           std::vector<Tensors> lists;
           for (std::size_t i = 0; i < call.outputs.size(); i += 2) {
             lists.push_back({call.outputs[i], call.outputs[i + 1]});
           }
           return backend.allgather_coalesced(lists, call.inputs,
                                              options_of<c10d::AllgatherOptions>(async));
         };
         return s;
       }});
  cases.push_back({"allgather_into_tensor_coalesced", [](bool strided, bool async) {
                     Scenario s{{of_rank(rank(), strided), of_rank(rank(), !strided)},
                                {empty_like_rank(strided, kRows * size()),
                                 empty_like_rank(!strided, kRows * size())},
                                {torch::cat(all_ranks(strided)), torch::cat(all_ranks(!strided))},
                                {}};
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       return backend.allgather_into_tensor_coalesced(
                           call.outputs, call.inputs, options_of<c10d::AllgatherOptions>(async));
                     };
                     return s;
                   }});
  cases.push_back({"gather", [](bool strided, bool async) {
                     Scenario s{{of_rank(rank(), strided)}, {}, {}, {}};
                     if (is_root()) {
                       s.outputs = empties(static_cast<std::size_t>(size()), strided);
                       s.expected = all_ranks(strided);
                     }
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       std::vector<Tensors> lists;
                       if (is_root()) lists.push_back(call.outputs);
                       return backend.gather(lists, call.inputs,
                                             options_of<c10d::GatherOptions>(async));
                     };
                     return s;
                   }});
  return cases;
}

std::vector<Case> movements() {
  std::vector<Case> cases;
  cases.push_back({"broadcast", [](bool strided, bool async) {
                     return Scenario{{},
                                     {is_root() ? of_rank(0, strided) : empty_like_rank(strided)},
                                     {of_rank(0, strided)},
                                     [async](c10d::Backend& backend, Scenario& s) {
                                       return backend.broadcast(
                                           s.outputs, options_of<c10d::BroadcastOptions>(async));
                                     }};
                   }});
  cases.push_back({"scatter", [](bool strided, bool async) {
                     Scenario s{{}, {empty_like_rank(strided)}, {of_rank(rank(), strided)}, {}};
                     if (is_root()) s.inputs = all_ranks(strided);
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       std::vector<Tensors> lists;
                       if (is_root()) lists.push_back(call.inputs);
                       return backend.scatter(call.outputs, lists,
                                              options_of<c10d::ScatterOptions>(async));
                     };
                     return s;
                   }});
  cases.push_back(
      {"alltoall_base", [](bool strided, bool async) {
         Scenario s{{}, {empty_like_rank(strided, kRows * size())}, {}, {}};
         s.inputs = {of_rank(rank(), strided, kRows * size())};
         Tensors parts;
         for (int other = 0; other < size(); ++other) {
           parts.push_back(
               of_rank(other, strided, kRows * size()).narrow(0, rank() * kRows, kRows));
         }
         s.expected = {torch::cat(parts)};
         s.start = [async](c10d::Backend& backend, Scenario& call) {
           std::vector<std::int64_t> even;
           return backend.alltoall_base(call.outputs[0], call.inputs[0], even, even,
                                        options_of<c10d::AllToAllOptions>(async));
         };
         return s;
       }});
  cases.push_back({"alltoall", [](bool strided, bool async) {
                     Scenario s{{}, empties(static_cast<std::size_t>(size()), strided), {}, {}};
                     for (int other = 0; other < size(); ++other) {
                       s.inputs.push_back(of_rank(3 * rank() + other, strided));
                       s.expected.push_back(of_rank(3 * other + rank(), strided));
                     }
                     s.start = [async](c10d::Backend& backend, Scenario& call) {
                       return backend.alltoall(call.outputs, call.inputs,
                                               options_of<c10d::AllToAllOptions>(async));
                     };
                     return s;
                   }});
  return cases;
}

// Round the ring; both are asynchronous by nature. One Work for both.
std::vector<Case> transfers() {
  std::vector<Case> cases;
  for (const bool is_any : {false, true}) {
    cases.push_back({is_any ? "batch of send and recvAnysource" : "batch of send and recv",
                     [is_any](bool strided, bool) {
                       const int previous = (rank() + size() - 1) % size();
                       return Scenario{{of_rank(rank(), strided)},
                                       {empty_like_rank(strided)},
                                       {of_rank(previous, strided)},
                                       [is_any, previous](c10d::Backend& backend, Scenario& s) {
                                         backend.startCoalescing();
                                         backend.send(s.inputs, (rank() + 1) % size(), 3);
                                         is_any ? backend.recvAnysource(s.outputs, 3)
                                                : backend.recv(s.outputs, previous, 3);
                                         return backend.endCoalescing();
                                       }};
                     }});
  }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto&& list : {reductions(), gathers(), movements(), transfers()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

void expect_results(const Scenario& scenario, const std::string& name) {
  for (std::size_t i = 0; i < scenario.expected.size(); ++i) {
    const at::Tensor& got = scenario.outputs[i];
    EXPECT_TRUE(at::equal(got.is_sparse() ? got.to_dense() : got, scenario.expected[i]))
        << name << ", output " << i;
  }
}

class OwnershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (size() < 2) {
      GTEST_SKIP() << "needs two ranks";
    }
    group_ = make_group();
    backend_ = group_->getBackend(c10::kCPU);
    group_->barrier()->wait();
  }

  bool is_late() const { return rank() == size() - 1; }

  /// Runs `use` on every rank for every operation, asynchronous, of dense and strided tensors; the
  /// last rank after a while, and it looks at its results.
  template <typename Use>
  void for_each_operation(const Use& use) {
    for (const Case& each : all_cases()) {
      for (const bool is_strided : {false, true}) {
        const std::string name = each.name + (is_strided ? ", strided" : ", dense");
        if (rank() == 0) std::cout << name << "\n";
        Scenario scenario = each.make(is_strided, true);
        if (is_late()) {
          std::this_thread::sleep_for(milliseconds{60});
          const WorkPtr work = scenario.start(*backend_, scenario);
          work->wait();
          expect_results(scenario, name);
        } else {
          use(scenario, name);
        }
        group_->barrier()->wait();
      }
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

TEST_F(OwnershipTest, EverythingIsDropped) {
  for_each_operation([&](Scenario& scenario, const std::string&) {
    scenario.start(*backend_, scenario);
    scenario = {};
  });
}

TEST_F(OwnershipTest, OnlyTheOutputsAreHeld) {
  for_each_operation([&](Scenario& scenario, const std::string& name) {
    scenario.start(*backend_, scenario);
    scenario.inputs.clear();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    const auto is_there = [&] {
      for (std::size_t i = 0; i < scenario.expected.size(); ++i) {
        const at::Tensor& got = scenario.outputs[i];
        if (!at::equal(got.is_sparse() ? got.to_dense() : got, scenario.expected[i])) return false;
      }
      return true;
    };
    while (!is_there() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds{1});
    }
    expect_results(scenario, name);
  });
}

TEST_F(OwnershipTest, TheWaitIsGivenUp) {
  for_each_operation([&](Scenario& scenario, const std::string&) {
    const WorkPtr work = scenario.start(*backend_, scenario);
    try {
      work->wait(milliseconds{5});
    } catch (const TimeoutError&) {
      // Or not: a gather may be through with this rank's part.
    }
    scenario = {};
  });
}

TEST_F(OwnershipTest, TheFutureAloneBringsTheResults) {
  for_each_operation([&](Scenario& scenario, const std::string& name) {
    const auto future = scenario.start(*backend_, scenario)->getFuture();
    scenario.inputs.clear();
    scenario.outputs.clear();
    future->wait();
    ASSERT_FALSE(future->hasError()) << name;
    Tensors results;
    if (future->value().isTensorList()) {
      results = future->value().toTensorVector();
    } else {
      for (const c10::IValue& list : future->value().toListRef()) {
        const Tensors more = list.toTensorVector();
        results.insert(results.end(), more.begin(), more.end());
      }
    }
    if (name.find("batch") != std::string::npos) results.erase(results.begin());  // of the send
    scenario.outputs = results;
    if (!scenario.expected.empty()) expect_results(scenario, name);
  });
}

TEST_F(OwnershipTest, SynchronousCallsKeepNothing) {
  for (const Case& each : all_cases()) {
    for (const bool is_strided : {false, true}) {
      Scenario scenario = each.make(is_strided, false);
      const WorkPtr work = scenario.start(*backend_, scenario);
      work->wait();
      expect_results(scenario, each.name);
    }
  }
}

}  // namespace
}  // namespace chainmail::internal

int main(int argc, char** argv) {
  chainmail::test::guard_tensors();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
