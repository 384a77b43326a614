// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/pipeline.h>

#include <algorithm>
#include <exception>
#include <string>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>

#include "plugin/train/communicator/communicator_impl.h"
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

  static constexpr std::int64_t kNumbers = 2;
};

at::Tensor to_tensor(const BatchPlan& plan) {
  at::Tensor numbers = at::empty({BatchPlan::kNumbers}, at::kLong);
  numbers[0].fill_(plan.microbatches);
  numbers[1].fill_(plan.samples);
  return numbers;
}

// What rank 0 is about to do, from stage to stage. A rank that cut otherwise would take another's
// last microbatches for the first ones of the next batch. Returns the samples of the input.
std::int64_t pass_on(const std::shared_ptr<Communicator>& communicator, BatchPlan plan) {
  const at::NoGradGuard no_grad;
  const int rank = communicator->rank();
  if (rank > 0) {
    const at::Tensor before = functions::recv(communicator, rank - 1);
    const bool is_plan = before.scalar_type() == at::kLong && before.numel() == BatchPlan::kNumbers;
    const std::int64_t microbatches = is_plan ? before[0].item<std::int64_t>() : 0;
    if (microbatches != plan.microbatches) {
      internal::end_for_mismatch(
          *communicator, "Pipeline: rank " + std::to_string(rank - 1) + " is at " +
                             (is_plan ? "a batch in " + std::to_string(microbatches) +
                                            (microbatches == 1 ? " microbatch" : " microbatches")
                                      : std::string("something else than step()")) +
                             ", rank " + std::to_string(rank) + " at one in " +
                             std::to_string(plan.microbatches) +
                             "; PipelineOptions are the same on all ranks");
    }
    plan.samples = before[1].item<std::int64_t>();
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

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// The others wait for what this rank will not send. A dead communicator has told them already.
void tell_others(Communicator& communicator, const std::string& what) {
  const Communicator::Impl& impl = communicator.impl();
  if (communicator.size() == 1 || impl.is_finalized || impl.failure || impl.group->error()) return;
  internal::end_for_exception(communicator, "stage " + std::to_string(communicator.rank()) +
                                                " of a Pipeline has failed: " + what);
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

void Pipeline::backward() {
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (flight.loss.defined()) {
    flight.chain->backward(flight.loss);
  } else {
    flight.chain->backward();
  }
}

at::Tensor Pipeline::step(const at::Tensor& input, const at::Tensor& target,
                          const Criterion& criterion) {
  try {
    return run_batch(input, target, criterion);
  } catch (...) {
    flights_.clear();
    tell_others(*communicator_, text_of_current_exception());
    throw;
  }
}

at::Tensor Pipeline::run_batch(const at::Tensor& input, const at::Tensor& target,
                               const Criterion& criterion) {
  const std::vector<at::Tensor> inputs =
      is_first() ? cut(input, "input") : std::vector<at::Tensor>{};
  const std::vector<at::Tensor> targets =
      is_last() ? cut(target, "target") : std::vector<at::Tensor>{};
  const std::int64_t samples =
      pass_on(communicator_, {options_.microbatches, is_first() ? input.size(0) : 0});
  if (is_last()) check_samples(*communicator_, samples, target.size(0));
  const int rank = communicator_->rank();
  const auto allowed = static_cast<std::size_t>(communicator_->size() - rank);
  at::Tensor mean;
  for (int number = 0; number < options_.microbatches; ++number) {
    const auto index = static_cast<std::size_t>(number);
    if (flights_.size() == allowed) backward();
    Flight flight{std::make_unique<Chain>(communicator_), {}};
    const std::vector<at::Tensor> outputs = stage_.forward(
        is_first() ? std::vector<at::Tensor>{inputs[index]} : flight.chain->recv_list(rank - 1));
    if (!is_last()) {
      flight.chain->send(outputs, rank + 1);
    } else {
      if (outputs.size() != 1) {
        throw InvalidArgument("Pipeline: the last stage has " + std::to_string(outputs.size()) +
                              " outputs; there must be one");
      }
      flight.loss =
          weighted(criterion(outputs.front(), targets[index]), targets[index].size(0), samples);
      mean = mean.defined() ? mean + flight.loss.detach() : flight.loss.detach();
    }
    flights_.push_back(std::move(flight));
    most_in_flight_ = std::max(most_in_flight_, static_cast<int>(flights_.size()));
  }
  while (!flights_.empty()) backward();
  return mean;
}

}  // namespace chainmail
