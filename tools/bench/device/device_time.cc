// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/device/device_time.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <chainmail/cuda.h>

#include <chrono>
#include <string>

#include "base/error.h"

namespace chainmail::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Guard = c10::impl::VirtualGuardImpl;

// Runs the warm-up, then `sample` for every number, and adds up what the process used.
template <class TakeSample>
Sample collect(c10::Device device, const Repeats& repeats, const std::function<void()>& call,
               const TakeSample& take_sample) {
  Sample sample;
  sample.us.resize(static_cast<std::size_t>(repeats.samples));
  for (int i = 0; i < repeats.warmup * repeats.batch; ++i) call();
  finish_device(device);
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  for (double& us : sample.us) us = take_sample() / repeats.batch;
  sample.wall_s = std::chrono::duration<double>(Clock::now() - begin).count();
  sample.cpu_s = cpu_seconds() - cpu_before;
  return sample;
}

}  // namespace

void finish_device(c10::Device device) {
  if (!device.is_cpu()) Guard(device.type()).synchronizeDevice(device.index());
}

Sample time_on_device(c10::Device device, const Repeats& repeats,
                      const std::function<void()>& call) {
  if (device.is_cpu()) return time_calls(repeats, call);
  return collect(device, repeats, call, [&] {
    const c10::Stream stream = Guard(device.type()).getStream(device);
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // with timing
    c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    for (int i = 0; i < repeats.batch; ++i) call();
    end.record(stream);
    end.synchronize();
    return begin.elapsedTime(end) * 1e3;
  });
}

Sample time_issue(c10::Device device, const Repeats& repeats, const std::function<void()>& call) {
  return collect(device, repeats, call, [&] {
    const auto begin = Clock::now();
    for (int i = 0; i < repeats.batch; ++i) call();
    const std::chrono::duration<double, std::micro> spent = Clock::now() - begin;
    finish_device(device);
    return spent.count();
  });
}

c10::Device choose_device(const std::string& name, int local_rank) {
  if (name == "cpu") return c10::kCPU;
  if (name != "cuda") throw InvalidArgument("--device " + name + ": valid are cpu and cuda");
  load_cuda("--device cuda");
  const Guard guard(c10::kCUDA);
  const c10::Device device(c10::kCUDA,
                           static_cast<c10::DeviceIndex>(local_rank % guard.deviceCount()));
  guard.setDevice(device);
  return device;
}

}  // namespace chainmail::bench
