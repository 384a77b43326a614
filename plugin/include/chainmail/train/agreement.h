// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Decisions that all ranks take alike: work that must succeed everywhere, tensors that must be
// equal everywhere.
//
// Collective: every rank calls in the same order.

#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/communicator.h>
#include <chainmail/export.h>

namespace chainmail {

namespace internal {

/// Throws the same InvalidArgument on all ranks when `error` is not empty on some; it names the
/// ranks and quotes the first.
CHAINMAIL_API void throw_if_any_failed(Communicator& communicator, const std::string& error);

}  // namespace internal

/// Runs `work` on every rank and returns its result. When it throws on some rank, all ranks throw
/// the same InvalidArgument, which names that rank, its host and its error: one rank that cannot
/// read its data leaves nobody waiting. `work` itself must not communicate.
template <typename F>
auto on_all_ranks(Communicator& communicator, F&& work) {
  using Result = std::invoke_result_t<F>;
  std::string error;
  const auto guarded = [&](const auto& run) {
    try {
      run();
    } catch (const std::exception& caught) {
      error = caught.what();
      error += error.empty() ? "unknown error" : "";
    } catch (...) {
      error = "an exception that is no std::exception";
    }
    internal::throw_if_any_failed(communicator, error);
  };
  if constexpr (std::is_void_v<Result>) {
    guarded([&] { work(); });
  } else {
    std::optional<Result> result;
    guarded([&] { result.emplace(work()); });
    return *std::move(result);
  }
}

/// A digest (XXH3, 64 bits) of the elements of all tensors, in order, as they lie in memory when
/// contiguous. Dense CPU tensors. Local.
[[nodiscard]] CHAINMAIL_API std::uint64_t digest(at::ArrayRef<at::Tensor> tensors);

/// The digest, when it is the same on every rank.
/// @throws MismatchError  on all ranks, naming the ranks that differ and their digests
CHAINMAIL_API std::uint64_t verify_equal(Communicator& communicator,
                                         at::ArrayRef<at::Tensor> tensors);

}  // namespace chainmail
