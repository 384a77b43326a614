// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A system that is out of threads, while somebody wants it to be. Defines pthread_create() in front
// of the C library's, so include it in one file of a program.

#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace chainmail::test {
inline std::atomic<bool> are_threads_refused{false};

/// While one lives, no thread can be had.
class NoThreads {
 public:
  NoThreads() { are_threads_refused = true; }
  ~NoThreads() { are_threads_refused = false; }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
};
}  // namespace chainmail::test

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  if (chainmail::test::are_threads_refused) return EAGAIN;
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}
