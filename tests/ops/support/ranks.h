// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks as threads of the test process.

#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace chainmail::test {

/// Runs `body(rank)` in `size` threads at once; what each threw, null where it returned.
inline std::vector<std::exception_ptr> run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// what() of an error, "" for none.
inline std::string text_of(const std::exception_ptr& error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not a std::exception";
  }
}

/// True when the error is an E.
template <typename E>
bool is(const std::exception_ptr& error) {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// run_ranks, with a failure for every rank that threw.
inline void run_ranks_ok(int size, const std::function<void(int)>& body) {
  const auto errors = run_ranks(size, body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    EXPECT_EQ(text_of(errors[rank]), "") << "on rank " << rank;
  }
}

}  // namespace chainmail::test
