// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory of CPU tensors whose pages go when the tensor does: whoever touches it afterwards ends the
// process, with or without a sanitizer.

#pragma once

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <new>

namespace chainmail::test {

class GuardedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::size_t whole = pages(bytes) + kPage;
    auto* memory = static_cast<std::byte*>(
        ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory == MAP_FAILED) throw std::bad_alloc();
    *reinterpret_cast<std::size_t*>(memory) = whole;
    return {memory + kPage, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static constexpr std::size_t kPage = 4096;
  static std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  // The addresses stay taken, so that nothing else comes to lie there.
  static void release(void* memory) {
    const std::size_t whole = *static_cast<std::size_t*>(memory);
    ::mmap(memory, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
           0);
  }
};

/// From now on all tensors of this process are made of such memory.
inline void guard_tensors() {
  static GuardedAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

}  // namespace chainmail::test
