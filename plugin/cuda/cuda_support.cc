// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/cuda/cuda_support.h"

#include <ATen/Context.h>
#include <chainmail/cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "ops/device_library/device_library.h"

namespace chainmail {
namespace internal {
namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

template <typename Function>
Function* find_function(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

// The folder of the LibTorch that this process runs with.
std::string loaded_torch_folder() {
  void* const library = ::dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  const link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  ::dlclose(library);
  return std::filesystem::path(map->l_name).parent_path();
}

// The driver is asked directly: it answers in no time, and libtorch_cuda would not say why not.
void ask_driver(const CudaPlaces& places, CudaFindings& findings) {
  void* const driver = ::dlopen(places.driver_library.c_str(), RTLD_NOW);
  if (driver == nullptr) {
    findings.driver_problem = ::dlerror();
    return;
  }
  auto* const init = find_function<int(unsigned)>(driver, "cuInit");
  auto* const version = find_function<int(int*)>(driver, "cuDriverGetVersion");
  auto* const count = find_function<int(int*)>(driver, "cuDeviceGetCount");
  auto* const text = find_function<int(int, const char**)>(driver, "cuGetErrorString");
  if (init == nullptr || version == nullptr || count == nullptr) {
    findings.driver_problem = places.driver_library + " is no CUDA driver";
    return;
  }
  version(&findings.driver_version);
  findings.driver_code = init(0);
  if (findings.driver_code == 0) findings.driver_code = count(&findings.devices);
  const char* words = nullptr;
  if (findings.driver_code != 0 && text != nullptr && text(findings.driver_code, &words) == 0 &&
      words != nullptr) {
    findings.driver_text = words;
  }
  // libtorch_cpu of a CUDA build has the runtime loaded already.
  if (auto* const runtime = find_function<int(int*)>(RTLD_DEFAULT, "cudaRuntimeGetVersion")) {
    runtime(&findings.runtime_version);
  }
}

bool has_usable_driver(const CudaFindings& findings) {
  return findings.driver_problem.empty() && findings.driver_code == 0 && findings.devices > 0 &&
         findings.driver_version / 1000 >= findings.runtime_version / 1000;
}

// For good: CUDA libraries leave threads and handlers behind.
std::string open_library(const std::string& path) {
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) != nullptr ? ""
                                                                                   : ::dlerror();
}

std::string open_own_library(const std::string& file) {
  try {
    static_cast<void>(ops::open_device_library(file));
    return {};
  } catch (const InvalidArgument& refusal) {
    constexpr std::string_view kSubject = "CUDA tensors: ";
    std::string_view text = refusal.what();
    if (text.substr(0, kSubject.size()) == kSubject) text.remove_prefix(kSubject.size());
    return std::string(text);
  }
}

std::string visible_devices() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "" : std::string("; CUDA_VISIBLE_DEVICES=\"") + value + "\"";
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

CudaFindings open_cuda(const CudaPlaces& places) {
  CudaFindings findings;
  findings.torch_folder = places.torch_folder.empty() ? loaded_torch_folder() : places.torch_folder;
  const auto torch_library = std::filesystem::path(findings.torch_folder) / places.torch_library;
  findings.has_torch_library = std::filesystem::exists(torch_library);
  if (!findings.has_torch_library) return findings;
  ask_driver(places, findings);
  if (!has_usable_driver(findings)) return findings;
  findings.torch_problem = open_library(torch_library);
  if (!findings.torch_problem.empty()) return findings;
  findings.torch_sees_cuda = at::globalContext().hasCUDA();
  if (!findings.torch_sees_cuda) return findings;
  findings.own_problem = open_own_library(places.own_library);
  return findings;
}

std::string why_no_cuda(const CudaFindings& findings) {
  if (!findings.has_torch_library) {
    return "the LibTorch in " + findings.torch_folder +
           " is a build for CPUs (no libtorch_cuda.so); install one for CUDA";
  }
  if (!findings.driver_problem.empty()) {
    return "there is no NVIDIA driver here (" + findings.driver_problem +
           "); install it, or use a machine with an NVIDIA GPU";
  }
  if (findings.driver_code == kNoDevice || (findings.driver_code == 0 && findings.devices == 0)) {
    return "the NVIDIA driver sees no GPU" + visible_devices();
  }
  if (findings.driver_version / 1000 < findings.runtime_version / 1000) {
    return "the NVIDIA driver is for CUDA " + version_text(findings.driver_version) +
           " and LibTorch for CUDA " + version_text(findings.runtime_version) +
           "; install a newer driver";
  }
  if (findings.driver_code != 0) {
    return "the NVIDIA driver does not start: error " + std::to_string(findings.driver_code) +
           (findings.driver_text.empty() ? "" : ", " + findings.driver_text) + visible_devices();
  }
  if (!findings.torch_problem.empty()) {
    return "LibTorch's CUDA library cannot be opened (" + findings.torch_problem +
           "); install what it names, such as the wheels nvidia-* that torch asks for";
  }
  if (!findings.torch_sees_cuda) {
    return "LibTorch was asked about CUDA before its CUDA library was there, and remembers that "
           "there is none; call chainmail::load_cuda() first";
  }
  return findings.own_problem;
}

void require_cuda(const std::string& who) {
  static std::mutex mutex;
  static bool is_open = false;
  const std::lock_guard lock(mutex);
  if (is_open) return;
  const std::string reason = why_no_cuda(open_cuda());
  if (!reason.empty()) throw InvalidArgument(who + " needs CUDA: " + reason);
  is_open = true;
}

}  // namespace internal

void load_cuda(const std::string& who) { internal::require_cuda(who); }

}  // namespace chainmail
