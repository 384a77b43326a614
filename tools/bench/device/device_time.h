// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How long a device takes, and how long the host takes to ask it.
//
// Of the calling thread's current stream. Every rank runs them at the same time.

#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>

#include "tools/bench/measure/timing_loop.h"

namespace chainmail::bench {

/// One round of `call`, which queues its work on the current stream: the device's own time, by
/// events around each sample. On the CPU the time that the calls take.
[[nodiscard]] Sample time_on_device(c10::Device device, const Repeats& repeats,
                                    const std::function<void()>& call);

/// How long the calls take to return; the device's work is waited for between samples, off the
/// clock.
[[nodiscard]] Sample time_issue(c10::Device device, const Repeats& repeats,
                                const std::function<void()>& call);

/// All that is queued on the device is done.
void finish_device(c10::Device device);

/// "cpu" or "cuda": the device of a rank with that local rank, GPUs in turn where there are fewer
/// than ranks, which becomes the calling thread's. Throws InvalidArgument for other names, and
/// where there is no CUDA.
[[nodiscard]] c10::Device choose_device(const std::string& name, int local_rank);

}  // namespace chainmail::bench
