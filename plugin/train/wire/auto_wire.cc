// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/auto_wire.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "plugin/job/torch_group.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/wire/wire_choice.h"

namespace chainmail::internal {

AutoWire::AutoWire(Communicator& communicator) {
  if (parse_torch_backend(communicator.name())) {
    throw InvalidArgument("wire = \"auto\": communicator '" + communicator.name() +
                          "' is torch's own and sends gradients as they are; use one of "
                          "Chainmail's own");
  }
  if (!communicator.impl().packs()) {
    throw InvalidArgument(
        "wire = \"auto\": communicator 'naive' exchanges gradients one by one, as its "
        "allreduce_grad_dtype says; use 'hierarchical' or another");
  }
  if (communicator.impl().shards) {
    throw InvalidArgument(
        "wire = \"auto\": in a job of shards bits do not depend on how long steps take; name a "
        "wire, such as \"float16\"");
  }
}

void AutoWire::check(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.is_cpu()) continue;
    throw InvalidArgument("wire = \"auto\": parameter '" + parameter.name + "' is on " +
                          parameter.tensor.device().str() +
                          ", and what gradients there wait for is not measured; name a wire, such "
                          "as \"float16\"");
  }
}

std::optional<ops::WireFormat> AutoWire::choose(Communicator& communicator,
                                                const GradientExchange& gradients,
                                                std::size_t bytes, std::uint64_t step) {
  if (communicator.inter_size() == 1) return std::nullopt;
  if (step + kMeasuredSteps == next_choice_) {
    measured_since_ = std::chrono::steady_clock::now();
    known_times_ = gradients.times();
  }
  if (step != next_choice_) return std::nullopt;
  next_choice_ += kStepsBetweenChoices;
  const GradientExchange::Times& now = gradients.times();
  const WireTimes own{
      .steps = kMeasuredSteps,
      .step =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - measured_since_).count(),
      .waited = (now.waited - known_times_.waited).count(),
      .travelled = (now.travelled - known_times_.travelled).count()};
  // Who waits least is the last one to come, and waits for bytes alone.
  std::vector<WireTimes> all(static_cast<std::size_t>(communicator.size()));
  all_gather(*communicator.impl().group, &own, all.data(), sizeof own, label_of("times of steps"));
  const WireTimes& times = *std::ranges::min_element(all, {}, &WireTimes::waited);
  const ops::WireFormat best = choose_wire(times, bytes, wire_);
  const auto chosen =
      ops::parse_wire_format(communicator.bcast_obj(std::string(ops::to_string(best))));
  if (communicator.rank() == 0) {
    LogMessage(LogLevel::kInfo) << "wire auto: " << internal::describe(times, bytes)
                                << "; they travel as " << ops::to_string(chosen) << " from now on";
  }
  if (chosen == wire_) return std::nullopt;
  return chosen;
}

void AutoWire::use(ops::WireFormat wire, std::uint64_t step) noexcept {
  wire_ = wire;
  next_choice_ = step + kStepsBetweenChoices;
}

}  // namespace chainmail::internal
