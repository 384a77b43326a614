// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The functions of CUDA's driver that the runtime does not have. They are asked for at run time, so
// that nothing links libcuda, which a machine without a driver lacks.
//
// Any thread.

#pragma once

#include <cuda.h>

namespace chainmail::ops::cuda {

struct Driver {
  decltype(&cuStreamWaitValue32) wait_value = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) context_state = nullptr;
};

/// Members are null where the driver has no such function, all of them where there is no driver.
[[nodiscard]] const Driver& driver() noexcept;

}  // namespace chainmail::ops::cuda
