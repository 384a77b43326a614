// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/page_memory.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <new>

#include <c10/core/CPUAllocator.h>

namespace chainmail::internal {

namespace {

// Below this a hole in the heap costs less than the rest of a page.
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

struct Mapping {
  void* data = nullptr;
  std::size_t bytes = 0;
};

void unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  munmap(mapping->data, mapping->bytes);
}

// Where the object begins that defines a function for this process.
const void* object_of(const char* function) noexcept {
  Dl_info found{};
  const void* const address = ::dlsym(RTLD_DEFAULT, function);
  return address != nullptr && ::dladdr(address, &found) != 0 ? found.dli_fbase : nullptr;
}

}  // namespace

c10::DataPtr allocate_pages(std::size_t bytes) {
  if (bytes < kLeastBytes) {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(bytes);
    if (bytes > 0) std::memset(memory.get(), 0, bytes);
    return memory;
  }
  auto mapping = std::make_unique<Mapping>();
  mapping->bytes = bytes;
  mapping->data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (mapping->data == MAP_FAILED) throw std::bad_alloc();
  void* const data = mapping->data;
  return {data, mapping.release(), unmap, c10::Device(c10::kCPU)};
}

void trim_heap() noexcept {
  static const bool is_of_libc =
      object_of("malloc") != nullptr && object_of("malloc") == object_of("malloc_trim");
  if (is_of_libc) ::malloc_trim(0);
}

}  // namespace chainmail::internal
