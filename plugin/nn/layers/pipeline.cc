// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/nn/parallel/pipeline.h>

#include <algorithm>
#include <string>

#include <ATen/ATen.h>

#include <chainmail/error.h>

namespace chainmail {

namespace {

// Each microbatch's loss is a mean over its samples.
at::Tensor weighted(const at::Tensor& loss, std::int64_t samples, std::int64_t all) {
  if (!loss.defined() || loss.numel() != 1) {
    throw InvalidArgument("Pipeline: the criterion must return a scalar");
  }
  return loss * (static_cast<double>(samples) / static_cast<double>(all));
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
  flights_.clear();  // of a step that has thrown
  const std::vector<at::Tensor> inputs =
      is_first() ? cut(input, "input") : std::vector<at::Tensor>{};
  const std::vector<at::Tensor> targets =
      is_last() ? cut(target, "target") : std::vector<at::Tensor>{};
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
      flight.loss = weighted(criterion(outputs.front(), targets[index]), targets[index].size(0),
                             target.size(0));
      mean = mean.defined() ? mean + flight.loss.detach() : flight.loss.detach();
    }
    flights_.push_back(std::move(flight));
    most_in_flight_ = std::max(most_in_flight_, static_cast<int>(flights_.size()));
  }
  while (!flights_.empty()) backward();
  return mean;
}

}  // namespace chainmail
