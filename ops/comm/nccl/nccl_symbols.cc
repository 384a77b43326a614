// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/nccl/nccl_symbols.h"

#include <dlfcn.h>

namespace chainmail::ops {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
// The first with non-blocking communicators.
constexpr int kOldestVersion = 21400;

std::string text_of(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// Where NCCL's functions are in this process.
void* loaded_nccl() {
  if (void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD); library != nullptr) {
    return library;
  }
  // A torch that was built with a static NCCL has its functions inside.
  void* torch = ::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (torch != nullptr && ::dlsym(torch, "ncclCommInitRankConfig") != nullptr) return torch;
  // Nobody has loaded one yet, so that this is no second copy.
  return torch == nullptr ? ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL) : nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string find_nccl(NcclSymbols& symbols) {
  void* const library = loaded_nccl();
  if (library == nullptr) {
    return std::string("no NCCL: ") + kLibrary +
           " is neither loaded with libtorch_cuda nor found where the system looks; install "
           "nvidia-nccl-cu13 (pip) or libnccl2";
  }
  std::string missing;
  const auto need = [&](const char* name, auto& function) {
    if (!find(library, name, function)) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  need("ncclGetVersion", symbols.get_version);
  need("ncclGetUniqueId", symbols.get_unique_id);
  need("ncclCommInitRankConfig", symbols.init);
  need("ncclCommFinalize", symbols.finalize);
  need("ncclCommDestroy", symbols.destroy);
  need("ncclCommAbort", symbols.abort);
  need("ncclCommGetAsyncError", symbols.async_error);
  need("ncclGetErrorString", symbols.error_string);
  need("ncclGetLastError", symbols.last_error);
  need("ncclGroupStart", symbols.group_start);
  need("ncclGroupEnd", symbols.group_end);
  need("ncclAllReduce", symbols.all_reduce);
  need("ncclReduce", symbols.reduce);
  need("ncclReduceScatter", symbols.reduce_scatter);
  need("ncclAllGather", symbols.all_gather);
  need("ncclBroadcast", symbols.broadcast);
  need("ncclSend", symbols.send);
  need("ncclRecv", symbols.receive);
  find(library, "ncclCommSplit", symbols.split);
  find(library, "ncclMemAlloc", symbols.mem_alloc);
  find(library, "ncclMemFree", symbols.mem_free);
  find(library, "ncclCommRegister", symbols.reg);
  find(library, "ncclCommDeregister", symbols.deregister);
  if (symbols.get_version != nullptr) {
    static_cast<void>(symbols.get_version(&symbols.version));
    Dl_info where{};
    if (::dladdr(reinterpret_cast<const void*>(symbols.get_version), &where) != 0) {
      symbols.path = where.dli_fname;
    }
  }
  if (symbols.version < kOldestVersion || symbols.version / 10000 != NCCL_MAJOR) {
    return "NCCL " + text_of(symbols.version) + " at " + symbols.path + ": " +
           text_of(kOldestVersion) + " or later of version " + std::to_string(NCCL_MAJOR) +
           " is needed";
  }
  return missing.empty()
             ? missing
             : "NCCL " + text_of(symbols.version) + " at " + symbols.path + " lacks " + missing;
}

}  // namespace chainmail::ops
