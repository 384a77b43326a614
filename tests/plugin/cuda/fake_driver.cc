// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// As much of libcuda.so.1 as is asked before anything of CUDA is loaded. Says what the environment
// says: FAKE_CUDA_INIT (error code), FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES.

#include <cstdlib>

namespace {

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

// CUDA's own names.
extern "C" {
__attribute__((visibility("default"))) int cuInit(unsigned /*flags*/) {
  return number("FAKE_CUDA_INIT", 0);
}
__attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}
__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES", 1);
  return 0;
}
__attribute__((visibility("default"))) int cuGetErrorString(int code, const char** text) {
  *text = code == 999 ? "unknown error" : "some error";
  return 0;
}
}
