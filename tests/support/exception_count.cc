// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tells the thread sanitizer what orders the ends of an exception's users: the count of references
// to it, which is kept by a C++ library that is compiled without the sanitizer. Without this,
// whoever frees an exception that another thread has read before is reported.
//
// Stands before libstdc++'s functions of these names in programs of tests. Their layout of an
// exception: unwind-cxx.h of GCC, where the count begins a header of 128 bytes on machines of 64
// bits.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <exception>

namespace {

constexpr int kHeaderBytes = 128;

template <typename Function>
Function* libstdcpp(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// exception_ptr is a pointer to the exception.
void* exception_in(const std::exception_ptr& holder) {
  return *reinterpret_cast<void* const*>(&holder);
}

}  // namespace

#define CHAINMAIL_RELEASE "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv"

extern "C" {

__attribute__((visibility("default"))) void chainmail_release_exception(void** holder) noexcept
    __asm__(CHAINMAIL_RELEASE);

/// exception_ptr::_M_release()
__attribute__((no_sanitize("thread"))) void chainmail_release_exception(void** holder) noexcept {
  static auto* const release = libstdcpp<void(void**)>(CHAINMAIL_RELEASE);
  if (*holder == nullptr) return;
  auto* const count = reinterpret_cast<int*>(static_cast<char*>(*holder) - kHeaderBytes);
  __tsan_release(*holder);
  if (__atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL) != 0) {
    *holder = nullptr;
    return;
  }
  __tsan_acquire(*holder);
  __atomic_store_n(count, 1, __ATOMIC_RELEASE);  // nobody else has it any more
  release(holder);
}

/// The end of a catch, which lets go of the exception, too.
__attribute__((visibility("default"), no_sanitize("thread"))) void __cxa_end_catch() {
  static auto* const end_catch = libstdcpp<void()>("__cxa_end_catch");
  void* exception = nullptr;
  {
    const std::exception_ptr holder = std::current_exception();
    exception = exception_in(holder);
  }  // released
  if (exception != nullptr) __tsan_acquire(exception);
  end_catch();
}
}
