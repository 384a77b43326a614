// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/contestants/in_process.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "plugin/tensor/element_type.h"
#include "tools/bench/contestants/exercise.h"
#include "tools/bench/device/device_time.h"

namespace chainmail::bench {
namespace {

// What nodes send each other of this operation in a group whose wire is `of_group`.
ops::WireFormat wire_of(const Case& what, ops::WireFormat of_group) {
  const bool is_rounded =
      is_rounded_on_wires(what.op) && what.redop == "avg" && what.dtype == "float32";
  return is_rounded ? of_group : ops::WireFormat::kNative;
}

// Values that stay what they are however often they are summed, or all but stay where a mean is
// rounded to integers: blocks of zeros would cost less than others.
void fill(Exercise& exercise, const Case& what, ops::WireFormat wire) {
  if (ops::is_in_blocks(wire_of(what, wire))) return;
  for (at::Tensor& input : exercise.inputs) input.zero_();
}

class C10dContestant final : public Contestant {
 public:
  C10dContestant(Candidate candidate, Ranks ranks, std::string description, c10::Device device)
      : candidate_(std::move(candidate)),
        ranks_(ranks),
        description_(std::move(description)),
        device_(device) {}

  const std::string& name() const noexcept override { return candidate_.name; }
  std::string description() const override { return description_; }
  void prepare(const Case& what) override {
    if (!candidate_.group) return;
    exercise_ = make_exercise(what, ranks_, device_);
    fill(exercise_, what, ops::parse_wire_format(candidate_.wire));
  }
  std::int64_t count_wrong(const Case& what) override {
    if (!candidate_.group) return 0;
    const Exercise fresh = make_exercise(what, ranks_, device_);
    fresh.run(*candidate_.group);
    return fresh.count_wrong(wire_of(what, ops::parse_wire_format(candidate_.wire)));
  }
  Sample time(const Case& what) override {
    if (!candidate_.group) return absent(what);
    const auto call = [this] { exercise_.run(*candidate_.group); };
    if (what.is_issue) return time_issue(device_, what.repeats, call);
    return time_on_device(device_, what.repeats, call);
  }

 private:
  static Sample absent(const Case& what) {
    Sample sample;
    sample.us.resize(static_cast<std::size_t>(what.repeats.samples));
    return sample;
  }

  Candidate candidate_;
  const Ranks ranks_;
  const std::string description_;
  const c10::Device device_;
  Exercise exercise_;
};

class EngineContestant final : public Contestant {
 public:
  EngineContestant(std::string name, std::shared_ptr<ops::Group> group, EngineCalls how)
      : name_(std::move(name)),
        group_(std::move(group)),
        how_(how),
        ranks_{group_->rank(), group_->size(), group_->topology().node_count()} {
    if (how_.shards == 0) return;
    auto cut = std::make_shared<ops::ShardCut>(ops::ShardCut{ops::ShardTree(how_.shards), {}});
    const auto size = static_cast<std::uint32_t>(ranks_.size);
    for (std::uint32_t rank = 0; rank <= size; ++rank) {
      cut->bounds.push_back(how_.shards * rank / size);
    }
    cut_ = std::move(cut);
  }

  const std::string& name() const noexcept override { return name_; }
  std::string description() const override {
    return std::string("the engine's call, without c10d") +
           (how_.uses_group_memory ? ", all_reduce in the group's memory" : "") +
           (cut_ ? ", of " + std::to_string(how_.shards) + " shards along their tree" : "") +
           (ops::is_in_blocks(wire()) ? ", all_reduce avg with feedback" : "");
  }
  void prepare(const Case& what) override {
    exercise_ = make(what);
    fill(exercise_, what, wire());
    call_ = collective(what, exercise_);
  }
  std::int64_t count_wrong(const Case& what) override {
    Exercise fresh = make(what);
    group_->run(collective(what, fresh));
    return fresh.count_wrong(wire_of(what, wire()));
  }
  Sample time(const Case& what) override {
    return time_calls(what.repeats, [&] {
      group_->run(call_);
      if (call_.feedback) ++call_.feedback->exchanges;
    });
  }

 private:
  ops::WireFormat wire() const { return group_->options().wire; }
  Exercise make(const Case& what) const;
  ops::Collective collective(const Case& what, Exercise& exercise) const;
  void add_pieces(ops::Collective& call, const at::Tensor& output) const;
  static void add_feedback(ops::Collective& call, const at::Tensor& output);

  const std::string name_;
  const std::shared_ptr<ops::Group> group_;
  const EngineCalls how_;
  const Ranks ranks_;
  std::shared_ptr<const ops::ShardCut> cut_;
  Exercise exercise_;
  ops::Collective call_;
};

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

Exercise EngineContestant::make(const Case& what) const {
  Exercise exercise = make_exercise(what, ranks_);
  if (!how_.uses_group_memory || what.op != "all_reduce") return exercise;
  const at::Tensor values = exercise.inputs.front();
  const auto memory = group_->allocate(values.nbytes());
  const at::Tensor tensor = at::from_blob(
      memory.get(), values.sizes(), [memory](void* /*kept by the capture*/) {}, values.options());
  tensor.copy_(values);
  exercise.inputs = {tensor};
  exercise.outputs = {tensor};
  return exercise;
}

// The output is the first piece; the others are zero, so that the sum stays what it is.
void EngineContestant::add_pieces(ops::Collective& call, const at::Tensor& output) const {
  call.shards = cut_;
  call.pieces.push_back(call.output);
  auto others = std::make_shared<std::vector<at::Tensor>>();
  while (call.pieces.size() < cut_->pieces_of(ranks_.rank).size()) {
    others->push_back(at::zeros_like(output));
    call.pieces.push_back(bytes_of(others->back()));
  }
  call.keep = std::move(others);
}

void EngineContestant::add_feedback(ops::Collective& call, const at::Tensor& output) {
  auto residuals = std::make_shared<std::vector<at::Tensor>>();
  for (int i = 0; i < 2; ++i) residuals->push_back(at::zeros_like(output));
  call.feedback = ops::WireFeedback{bytes_of(residuals->front()), bytes_of(residuals->back()), 0};
  call.keep = std::move(residuals);
}

ops::Collective EngineContestant::collective(const Case& what, Exercise& exercise) const {
  using ops::OpKind;
  const std::map<std::string, OpKind> kinds = {
      {"all_reduce", OpKind::kAllReduce}, {"all_gather", OpKind::kAllGather},
      {"broadcast", OpKind::kBroadcast},  {"reduce_scatter", OpKind::kReduceScatter},
      {"reduce", OpKind::kReduce},        {"all_to_all", OpKind::kAllToAll},
      {"gather", OpKind::kGather},        {"scatter", OpKind::kScatter},
      {"barrier", OpKind::kBarrier}};
  const auto kind = kinds.find(what.op);
  if (kind == kinds.end()) throw InvalidArgument("--engine cannot time " + what.op);
  const auto size = static_cast<std::size_t>(ranks_.size);
  const bool is_whole = what.op == "all_reduce" || what.op == "reduce" || what.op == "broadcast";
  ops::Collective call;
  call.kind = kind->second;
  call.is_async = false;
  call.reduce_op = ops::parse_reduce_op(what.redop);
  call.dtype = internal::data_type_of(parse_dtype(what.dtype)).value();
  call.count = is_whole ? what.count() : (what.count() + size - 1) / size;
  if (call.kind == OpKind::kScatter) {
    for (const at::Tensor& part : exercise.inputs) call.input_parts.push_back(bytes_of(part));
  } else if (!exercise.inputs.empty()) {
    call.input = bytes_of(exercise.inputs.front());
  }
  if (call.kind == OpKind::kGather) {
    for (const at::Tensor& part : exercise.outputs) call.output_parts.push_back(bytes_of(part));
  } else if (!exercise.outputs.empty()) {
    call.output = bytes_of(exercise.outputs.front());
  }
  if (call.kind != OpKind::kAllReduce) return call;
  if (cut_) add_pieces(call, exercise.outputs.front());
  const ops::WireFormat rounded = ops::wire_of({}, wire(), call.dtype, call.reduce_op);
  if (ops::is_in_blocks(rounded)) add_feedback(call, exercise.outputs.front());
  return call;
}

class MemoryContestant final : public Contestant {
 public:
  explicit MemoryContestant(Control& control) : control_(control) {}

  const std::string& name() const noexcept override { return name_; }
  std::string description() const override {
    return "a += b that moves 2 x size on every rank's core, the limit in one node's memory";
  }
  void prepare(const Case& what) override {
    // a += b reads two arrays and writes one: two thirds of the size in each make 2 x size.
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(what.bytes / 6, 1));
    a_ = at::zeros({count}, at::kFloat);
    b_ = at::ones({count}, at::kFloat);
  }
  std::int64_t count_wrong(const Case& /*what*/) override { return 0; }
  Sample time(const Case& what) override {
    // All cores at once, until the last rank is done: ranks may share cores.
    return time_calls(what.repeats, [&] {
      a_.add_(b_);
      control_.barrier();
    });
  }

 private:
  const std::string name_ = "memory";
  Control& control_;
  at::Tensor a_;
  at::Tensor b_;
};

}  // namespace

std::unique_ptr<Contestant> make_c10d_contestant(Candidate candidate, Ranks ranks,
                                                 std::string description, c10::Device device) {
  return std::make_unique<C10dContestant>(std::move(candidate), ranks, std::move(description),
                                          device);
}

std::unique_ptr<Contestant> make_engine_contestant(std::string name,
                                                   std::shared_ptr<ops::Group> group,
                                                   EngineCalls how) {
  return std::make_unique<EngineContestant>(std::move(name), std::move(group), how);
}

std::unique_ptr<Contestant> make_memory_contestant(Control& control) {
  return std::make_unique<MemoryContestant>(control);
}

}  // namespace chainmail::bench
