// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/contestants/exercise.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/kernels/block_wire.h"

namespace chainmail::bench {
namespace {

using c10d::ProcessGroup;

c10d::ReduceOp parse_redop(const std::string& name) {
  const std::map<std::string, c10d::ReduceOp::RedOpType> ops = {{"sum", c10d::ReduceOp::SUM},
                                                                {"avg", c10d::ReduceOp::AVG},
                                                                {"min", c10d::ReduceOp::MIN},
                                                                {"max", c10d::ReduceOp::MAX}};
  if (const auto found = ops.find(name); found != ops.end()) return found->second;
  throw InvalidArgument("unknown reduction \"" + name + "\"; valid are: sum, avg, min, max");
}

// What a reduction makes of rank 0's values times 1, rank 1's times 2, ...
double reduced_factor(const std::string& redop, int size) {
  const double sum = 0.5 * size * (size + 1);
  if (redop == "sum") return sum;
  if (redop == "avg") return sum / size;
  return redop == "min" ? 1.0 : size;
}

void finish(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work) work->wait();
}

/// Makes the parts that exercises have in common.
class ExerciseMaker {
 public:
  ExerciseMaker(const Case& what, const Ranks& ranks, c10::Device device)
      : ranks_(ranks),
        device_(device),
        type_(parse_dtype(what.dtype)),
        redop_(parse_redop(what.redop)),
        factor_(reduced_factor(what.redop, ranks.size)),
        part_(static_cast<std::int64_t>((what.count() + static_cast<std::size_t>(ranks.size) - 1) /
                                        static_cast<std::size_t>(ranks.size))),
        whole_(static_cast<std::int64_t>(what.count())) {}

  Exercise all_reduce() const {
    Exercise exercise = in_place(pattern(whole_, rank_factor()), pattern(whole_, factor_));
    exercise.run = [op = redop_, tensors = exercise.inputs](ProcessGroup& group) mutable {
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      options.asyncOp = false;  // as torch.distributed.all_reduce passes it
      finish(group.allreduce(tensors, options));
    };
    return exercise;
  }
  Exercise reduce() const {
    Exercise exercise = in_place(pattern(whole_, rank_factor()), pattern(whole_, factor_));
    if (ranks_.rank != 0) exercise.expected.clear();
    exercise.run = [op = redop_, tensors = exercise.inputs](ProcessGroup& group) mutable {
      c10d::ReduceOptions options;
      options.reduceOp = op;
      options.asyncOp = false;
      finish(group.reduce(tensors, options));
    };
    return exercise;
  }
  Exercise broadcast() const {
    Exercise exercise = in_place(pattern(whole_, rank_factor()), pattern(whole_, 1));
    exercise.run = [tensors = exercise.inputs](ProcessGroup& group) mutable {
      c10d::BroadcastOptions options;
      options.asyncOp = false;
      finish(group.broadcast(tensors, options));
    };
    return exercise;
  }
  Exercise all_gather() const {
    Exercise exercise = moving(pattern(part_, rank_factor()), at::cat(of_all_ranks(part_)));
    exercise.run = [input = exercise.inputs[0],
                    output = exercise.outputs[0]](ProcessGroup& group) mutable {
      c10d::AllgatherOptions options;
      options.asyncOp = false;
      finish(group._allgather_base(output, input, options));
    };
    return exercise;
  }
  Exercise reduce_scatter() const {
    const at::Tensor own = pattern(part_ * ranks_.size, factor_).narrow(0, offset(), part_);
    Exercise exercise = moving(pattern(part_ * ranks_.size, rank_factor()), own);
    exercise.run = [op = redop_, input = exercise.inputs[0],
                    output = exercise.outputs[0]](ProcessGroup& group) mutable {
      c10d::ReduceScatterOptions options;
      options.reduceOp = op;
      options.asyncOp = false;
      finish(group._reduce_scatter_base(output, input, options));
    };
    return exercise;
  }
  Exercise all_to_all() const {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& all : of_all_ranks(part_ * ranks_.size)) {
      parts.push_back(all.narrow(0, offset(), part_));
    }
    Exercise exercise = moving(pattern(part_ * ranks_.size, rank_factor()), at::cat(parts));
    exercise.run = [input = exercise.inputs[0],
                    output = exercise.outputs[0]](ProcessGroup& group) mutable {
      std::vector<std::int64_t> equal;
      c10d::AllToAllOptions options;
      options.asyncOp = false;
      finish(group.alltoall_base(output, input, equal, equal, options));
    };
    return exercise;
  }
  Exercise gather() const {
    Exercise exercise;
    exercise.inputs = {pattern(part_, rank_factor())};
    if (ranks_.rank == 0) {
      exercise.expected = of_all_ranks(part_);
      for (const at::Tensor& part : exercise.expected) {
        exercise.outputs.push_back(at::zeros_like(part));
      }
    }
    std::vector<std::vector<at::Tensor>> lists;
    if (ranks_.rank == 0) lists.push_back(exercise.outputs);
    exercise.run = [inputs = exercise.inputs, lists](ProcessGroup& group) mutable {
      c10d::GatherOptions options;
      options.rootRank = 0;
      options.asyncOp = false;
      finish(group.gather(lists, inputs, options));
    };
    return exercise;
  }
  Exercise scatter() const {
    Exercise exercise = moving(at::Tensor(), pattern(part_, rank_factor()));
    exercise.inputs = ranks_.rank == 0 ? of_all_ranks(part_) : std::vector<at::Tensor>();
    std::vector<std::vector<at::Tensor>> lists;
    if (ranks_.rank == 0) lists.push_back(exercise.inputs);
    exercise.run = [outputs = exercise.outputs, lists](ProcessGroup& group) mutable {
      c10d::ScatterOptions options;
      options.rootRank = 0;
      options.asyncOp = false;
      finish(group.scatter(outputs, lists, options));
    };
    return exercise;
  }
  /// Around the ring, as nccl-tests' sendrecv.
  Exercise send_recv() const {
    const int next = (ranks_.rank + 1) % ranks_.size;
    const int last = (ranks_.rank + ranks_.size - 1) % ranks_.size;
    Exercise exercise = moving(pattern(whole_, rank_factor()), pattern(whole_, last + 1));
    if (ranks_.size == 1) exercise.expected.clear();  // c10d does not send to itself
    exercise.run = [input = exercise.inputs, output = exercise.outputs, next, last,
                    size = ranks_.size, device = device_.type()](ProcessGroup& group) mutable {
      if (size == 1) return;
      // On a stream a send that waits for its receive would hold up the receive behind it.
      if (device != c10::kCPU) group.startCoalescing(device);
      const auto sent = group.send(input, next, 0);
      const auto received = group.recv(output, last, 0);
      if (device != c10::kCPU) return finish(group.endCoalescing(device));
      finish(received);
      finish(sent);
    };
    return exercise;
  }
  Exercise barrier() const {
    Exercise exercise;
    exercise.run = [device = device_](ProcessGroup& group) {
      c10d::BarrierOptions options;
      options.asyncOp = false;
      if (!device.is_cpu()) options.device = device;
      finish(group.barrier(options));
    };
    return exercise;
  }

 private:
  // 1, 2, 3, 1, ... times `factor`: exact in every dtype for a few dozen ranks.
  at::Tensor pattern(std::int64_t count, double factor) const {
    const at::Tensor values = at::arange(count, at::TensorOptions(at::kLong).device(device_));
    return values.remainder(3).add(1).to(at::kDouble).mul(factor).to(type_);
  }
  std::vector<at::Tensor> of_all_ranks(std::int64_t count) const {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < ranks_.size; ++rank) parts.push_back(pattern(count, rank + 1));
    return parts;
  }
  static Exercise in_place(const at::Tensor& tensor, const at::Tensor& expected) {
    return {{tensor}, {tensor}, {expected}, nullptr};
  }
  static Exercise moving(const at::Tensor& input, const at::Tensor& expected) {
    return {{input}, {at::zeros_like(expected)}, {expected}, nullptr};
  }
  double rank_factor() const { return ranks_.rank + 1; }
  std::int64_t offset() const { return ranks_.rank * part_; }

  const Ranks& ranks_;
  const c10::Device device_;
  const at::ScalarType type_;
  const c10d::ReduceOp redop_;
  const double factor_;
  const std::int64_t part_;
  const std::int64_t whole_;
};

struct Entry {
  std::string name;
  std::function<Exercise(const ExerciseMaker&)> make;
  std::function<double(double)> bus_factor;  // of the number of ranks
};

const std::vector<Entry>& entries() {
  const auto all = [](double) { return 1.0; };
  const auto others = [](double ranks) { return ranks > 1 ? (ranks - 1) / ranks : 1.0; };
  const auto twice = [others](double ranks) { return ranks > 1 ? 2 * others(ranks) : 1.0; };
  static const std::vector<Entry> kEntries = {
      {"all_reduce", &ExerciseMaker::all_reduce, twice},
      {"all_gather", &ExerciseMaker::all_gather, others},
      {"reduce_scatter", &ExerciseMaker::reduce_scatter, others},
      {"broadcast", &ExerciseMaker::broadcast, all},
      {"reduce", &ExerciseMaker::reduce, all},
      {"all_to_all", &ExerciseMaker::all_to_all, others},
      {"gather", &ExerciseMaker::gather, others},
      {"scatter", &ExerciseMaker::scatter, others},
      {"send_recv", &ExerciseMaker::send_recv, all},
      {"barrier", &ExerciseMaker::barrier, all}};
  return kEntries;
}

const Entry& entry(const std::string& op) {
  std::string valid;
  for (const Entry& known : entries()) {
    if (known.name == op) return known;
    valid += (valid.empty() ? "" : ", ") + known.name;
  }
  throw InvalidArgument("unknown operation \"" + op + "\"; valid are: " + valid);
}

}  // namespace

std::size_t Case::count() const {
  return std::max<std::size_t>(bytes / c10::elementSize(parse_dtype(dtype)), 1);
}

at::ScalarType parse_dtype(const std::string& name) {
  const std::map<std::string, at::ScalarType> dtypes = {
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int8", at::kChar},      {"uint8", at::kByte},
      {"int32", at::kInt},         {"int64", at::kLong}};
  if (const auto found = dtypes.find(name); found != dtypes.end()) return found->second;
  std::string valid;
  for (const auto& [known, type] : dtypes) valid += (valid.empty() ? "" : ", ") + known;
  throw InvalidArgument("unknown dtype \"" + name + "\"; valid are: " + valid);
}

std::int64_t Exercise::count_wrong(ops::WireFormat wire) const {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!ops::is_in_blocks(wire) || expected[i].numel() == 0) {
      wrong += outputs[i].ne(expected[i]).sum().item<std::int64_t>();
      continue;
    }
    // Half a scale of the contributions together, and half of the result's; scales are rounded up.
    const double largest = expected[i].abs().max().item<double>();
    const double bound = largest * 1.05 / ops::block_format(wire).most;
    wrong += (outputs[i] - expected[i]).abs().le(bound).logical_not().sum().item<std::int64_t>();
  }
  return wrong;
}

void check_redop(const std::string& name) { static_cast<void>(parse_redop(name)); }

std::vector<std::string> exercise_names() {
  std::vector<std::string> names;
  for (const Entry& known : entries()) names.push_back(known.name);
  return names;
}

Exercise make_exercise(const Case& what, const Ranks& ranks, c10::Device device) {
  return entry(what.op).make(ExerciseMaker(what, ranks, device));
}

bool is_rounded_on_wires(const std::string& op) {
  return op == "all_reduce" || op == "reduce_scatter" || op == "reduce";
}

double bus_factor(const std::string& op, int ranks) { return entry(op).bus_factor(ranks); }

}  // namespace chainmail::bench
