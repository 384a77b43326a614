// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an error is, beside its type, when all ranks of a communicator throw it with the same words.
// Thread-safe (a value).

#pragma once

#include <chainmail/export.h>

namespace chainmail {

/// One rank of that communicator may speak for all of them, rank 0 of the job only where it is one
/// of them: `dynamic_cast<const AgreedError*>(&error)`.
class CHAINMAIL_API AgreedError {
 public:
  virtual ~AgreedError() = default;
};

namespace internal {

template <typename Error>
class Agreed : public Error, public AgreedError {
 public:
  explicit Agreed(const Error& error) : Error(error) {}
};

}  // namespace internal
}  // namespace chainmail
