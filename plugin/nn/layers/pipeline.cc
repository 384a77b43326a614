// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/pipeline.h>

#include <algorithm>
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>

#include "plugin/train/communicator/family.h"

namespace chainmail {

namespace {

// Each microbatch's loss is a mean over its samples.
at::Tensor weighted(const at::Tensor& loss, std::int64_t samples, std::int64_t all) {
  if (!loss.defined() || loss.numel() != 1) {
    throw InvalidArgument("Pipeline: the criterion must return a scalar");
  }
  return loss * (static_cast<double>(samples) / static_cast<double>(all));
}

struct BatchPlan {
  std::int64_t microbatches = 0;
  std::int64_t samples = 0;  // of the input
  bool has_backward = true;

  static constexpr std::int64_t kNumbers = 3;
};

at::Tensor to_tensor(const BatchPlan& plan) {
  at::Tensor numbers = at::empty({BatchPlan::kNumbers}, at::kLong);
  numbers[0].fill_(plan.microbatches);
  numbers[1].fill_(plan.samples);
  numbers[2].fill_(plan.has_backward ? 1 : 0);
  return numbers;
}

std::string microbatches_of(const BatchPlan& plan) {
  return std::to_string(plan.microbatches) +
         (plan.microbatches == 1 ? " microbatch" : " microbatches");
}

// Of the rank before, and this one; empty where they are at the same batch.
std::string find_other_batch(int rank, const std::optional<BatchPlan>& before,
                             const BatchPlan& own) {
  const std::string first = "rank " + std::to_string(rank - 1);
  const std::string second = "rank " + std::to_string(rank);
  if (!before) {
    return first + " is at something else than a batch, " + second + " at a batch in " +
           microbatches_of(own);
  }
  if (before->microbatches != own.microbatches) {
    return first + " is at a batch in " + microbatches_of(*before) + ", " + second + " at one in " +
           std::to_string(own.microbatches) + "; PipelineOptions are the same on all ranks";
  }
  if (before->has_backward != own.has_backward) {
    const auto way = [](const BatchPlan& plan) {
      return plan.has_backward ? std::string(" forward and backward")
                               : std::string(" forward only");
    };
    return first + " goes" + way(*before) + " through a batch, " + second + way(own) +
           "; evaluate(), and step() under torch::NoGradGuard, go forward only, on all ranks";
  }
  return {};
}

std::optional<BatchPlan> plan_in(const at::Tensor& numbers) {
  if (numbers.scalar_type() != at::kLong || numbers.numel() != BatchPlan::kNumbers) return {};
  return BatchPlan{numbers[0].item<std::int64_t>(), numbers[1].item<std::int64_t>(),
                   numbers[2].item<std::int64_t>() != 0};
}

// What rank 0 is about to do, from stage to stage. A rank that cut otherwise would take another's
// last microbatches for the first ones of the next batch. Returns the samples of the input.
std::int64_t pass_on(const std::shared_ptr<Communicator>& communicator, BatchPlan plan) {
  const at::NoGradGuard no_grad;
  const int rank = communicator->rank();
  if (rank > 0) {
    const std::optional<BatchPlan> before = plan_in(functions::recv(communicator, rank - 1));
    const std::string difference = find_other_batch(rank, before, plan);
    if (!difference.empty()) internal::end_for_mismatch(*communicator, "Pipeline: " + difference);
    plan.samples = before->samples;
  }
  if (rank + 1 < communicator->size()) {
    static_cast<void>(functions::send(to_tensor(plan), communicator, rank + 1));
  }
  return plan.samples;
}

void check_samples(Communicator& communicator, std::int64_t of_input, std::int64_t of_target) {
  if (of_input == of_target) return;
  const auto end = [](std::int64_t samples) { return " has " + std::to_string(samples); };
  if (communicator.size() == 1) {
    throw InvalidArgument("Pipeline: the input" + end(of_input) + " samples, the target" +
                          end(of_target));
  }
  internal::end_for_mismatch(communicator, "Pipeline: the input on rank 0" + end(of_input) +
                                               " samples, the target on rank " +
                                               std::to_string(communicator.rank()) +
                                               end(of_target));
}

}  // namespace

Pipeline::Pipeline(internal::Component stage, std::shared_ptr<Communicator> communicator,
                   const PipelineOptions& options)
    : stage_(std::move(stage)), communicator_(std::move(communicator)), options_(options) {
  internal::require_communicator(communicator_, "Pipeline");
  if (options_.microbatches < 1) {
    throw InvalidArgument("Pipeline: " + std::to_string(options_.microbatches) +
                          " microbatches; there must be one or more");
  }
}

std::vector<at::Tensor> Pipeline::cut(const at::Tensor& batch, const char* what) const {
  if (!batch.defined() || batch.dim() == 0 || batch.size(0) < options_.microbatches) {
    throw InvalidArgument(
        std::string("Pipeline: the ") + what + " has " +
        (batch.defined() && batch.dim() > 0 ? std::to_string(batch.size(0)) : std::string("no")) +
        " samples for " + std::to_string(options_.microbatches) + " microbatches");
  }
  return at::tensor_split(batch, options_.microbatches, 0);
}

void Pipeline::go_back() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (!flight.has_backward) {
    // In place of gradients: no stage is ahead of the next one by more than in a step, and none has
    // returned when a later one fails.
    const at::NoGradGuard no_grad;
    if (!is_last()) static_cast<void>(flight.chain->recv(communicator_->rank() + 1));
    if (!is_first()) flight.chain->send(at::empty({0}), communicator_->rank() - 1);
  } else if (flight.loss.defined()) {
    flight.chain->backward(flight.loss);
  } else {
    flight.chain->backward();
  }
}

template <typename Run>
at::Tensor Pipeline::or_tell_others(const Run& run) {
  try {
    return run();
  } catch (...) {
    flights_.clear();
    internal::tell_of_current_exception(
        *communicator_, "stage " + std::to_string(communicator_->rank()) + " of a Pipeline");
    throw;
  }
}

at::Tensor Pipeline::step(const at::Tensor& input, const at::Tensor& target,
                          const Criterion& criterion) {
  return or_tell_others([&] {
    const auto targets = is_last() ? cut(target, "target") : std::vector<at::Tensor>{};
    const Batch batch = begin(input);
    if (is_last()) check_samples(*communicator_, batch.samples, target.size(0));
    at::Tensor mean;
    go_through(batch, [&](std::size_t number, const at::Tensor& output) {
      const at::Tensor& t = targets[number];
      const at::Tensor loss = weighted(criterion(output, t), t.size(0), batch.samples);
      mean = mean.defined() ? mean + loss.detach() : loss.detach();
      return loss;
    });
    return mean;
  });
}

at::Tensor Pipeline::evaluate(const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  return or_tell_others([&] {
    std::vector<at::Tensor> outputs;
    go_through(begin(input), [&](std::size_t /*number*/, const at::Tensor& output) {
      if (output.dim() == 0) {
        throw InvalidArgument(
            "Pipeline: the last stage's output is a scalar; evaluate() joins "
            "those of the microbatches by their first dimension");
      }
      outputs.push_back(output);
      return at::Tensor();
    });
    return is_last() ? at::cat(outputs) : at::Tensor();
  });
}

Pipeline::Batch Pipeline::begin(const at::Tensor& input) const {
  Batch batch;
  batch.has_backward = at::GradMode::is_enabled();
  if (is_first()) batch.inputs = cut(input, "input");
  batch.samples = pass_on(
      communicator_, {options_.microbatches, is_first() ? input.size(0) : 0, batch.has_backward});
  return batch;
}

void Pipeline::go_through(const Batch& batch, const Finish& finish) {
  const int rank = communicator_->rank();
  const auto allowed = static_cast<std::size_t>(communicator_->size() - rank);
  for (int number = 0; number < options_.microbatches; ++number) {
    const auto index = static_cast<std::size_t>(number);
    if (flights_.size() == allowed) go_back();
    Flight flight{std::make_unique<Chain>(communicator_), {}, batch.has_backward};
    flight.chain->tells_others_ = false;  // or_tell_others() knows the exception
    const std::vector<at::Tensor> outputs =
        stage_.forward(is_first() ? std::vector<at::Tensor>{batch.inputs[index]}
                                  : flight.chain->recv_list(rank - 1));
    if (!is_last()) {
      flight.chain->send(outputs, rank + 1);
    } else {
      if (outputs.size() != 1) {
        throw InvalidArgument("Pipeline: the last stage has " + std::to_string(outputs.size()) +
                              " outputs; there must be one");
      }
      flight.loss = finish(index, outputs.front());
    }
    flights_.push_back(std::move(flight));
    if (batch.has_backward) {
      most_in_flight_ = std::max(most_in_flight_, static_cast<int>(flights_.size()));
    }
  }
  while (!flights_.empty()) go_back();
}

}  // namespace chainmail
