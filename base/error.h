// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The exceptions that Chainmail throws; installed as <chainmail/error.h>.
//
// Thread-safe (values). An error other than InvalidArgument and CheckpointError leaves its group
// dead: every later call on that group throws the same error; make a new group to go on.
//
// A guard, not #pragma once: both paths of this file may meet in one translation unit.

#ifndef CHAINMAIL_ERROR_H_
#define CHAINMAIL_ERROR_H_

#include <stdexcept>
#include <string>
#include <vector>

#include "export.h"  // its neighbour here and where it is installed

namespace chainmail {

/// What kind of failure an Error reports; one value per exception type.
enum class ErrorCode {
  kInvalidArgument,  ///< InvalidArgument
  kMismatch,         ///< MismatchError
  kTimeout,          ///< TimeoutError
  kPeer,             ///< PeerError
  kSystem,           ///< SystemError
  kMpi,              ///< MpiError
  kNccl,             ///< NcclError
  kCuda,             ///< CudaError
  kCheckpoint,       ///< CheckpointError, of <chainmail/checkpoint_error.h>
};

/// The name of the exception type of a code, such as "PeerError".
CHAINMAIL_API const char* to_string(ErrorCode code) noexcept;

/// Base of all exceptions thrown by the library. `what()` says what failed, on which rank and
/// host, the values involved and what to try.
class CHAINMAIL_API Error : public std::runtime_error {
 public:
  /// `message` is returned by what().
  Error(ErrorCode code, const std::string& message);
  ~Error() override;
  /// Which of the derived types this is.
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The caller's mistake, found before anything was sent. The object stays usable.
class CHAINMAIL_API InvalidArgument : public Error {
 public:
  /// `message` is returned by what().
  explicit InvalidArgument(const std::string& message);
  ~InvalidArgument() override;
};

/// Ranks disagree about operation, shape, dtype, order or parameter set; names both sides.
class CHAINMAIL_API MismatchError : public Error {
 public:
  /// `message` is returned by what().
  explicit MismatchError(const std::string& message);
  ~MismatchError() override;
};

/// No progress within the time limit; `missing_ranks()` were not seen in the operation.
class CHAINMAIL_API TimeoutError : public Error {
 public:
  /// `missing_ranks` are global ranks.
  explicit TimeoutError(const std::string& message, std::vector<int> missing_ranks = {});
  ~TimeoutError() override;
  /// Global ranks that were not seen, in order; empty when unknown.
  const std::vector<int>& missing_ranks() const noexcept { return missing_ranks_; }

 private:
  std::vector<int> missing_ranks_;
};

/// A rank ended, stopped or was cut off. `peer_rank()` is its global rank, -1 when unknown.
class CHAINMAIL_API PeerError : public Error {
 public:
  /// `peer_rank` is a global rank, -1 when unknown.
  explicit PeerError(const std::string& message, int peer_rank = -1);
  ~PeerError() override;
  /// The global rank that failed, -1 when unknown.
  int peer_rank() const noexcept { return peer_rank_; }

 private:
  int peer_rank_;
};

/// A native call failed; the derived types say of which library.
class CHAINMAIL_API NativeError : public Error {
 public:
  /// `native_code` is returned by native_code().
  NativeError(ErrorCode code, const std::string& message, int native_code);
  ~NativeError() override;
  /// The code of the call that failed.
  int native_code() const noexcept { return native_code_; }

 private:
  int native_code_;
};

/// A call of the operating system failed; `native_code()` is errno.
class CHAINMAIL_API SystemError : public NativeError {
 public:
  /// `native_code` is an errno.
  SystemError(const std::string& message, int native_code);
  ~SystemError() override;
};

/// A call of MPI failed; `native_code()` is MPI's code.
class CHAINMAIL_API MpiError : public NativeError {
 public:
  /// `native_code` is MPI's.
  explicit MpiError(const std::string& message, int native_code = 0);
  ~MpiError() override;
};

/// A call of NCCL failed, or a communicator did; `native_code()` is NCCL's code.
class CHAINMAIL_API NcclError : public NativeError {
 public:
  /// `native_code` is NCCL's.
  explicit NcclError(const std::string& message, int native_code = 0);
  ~NcclError() override;
};

/// A call of CUDA failed, or a kernel did; `native_code()` is CUDA's code.
class CHAINMAIL_API CudaError : public NativeError {
 public:
  /// `native_code` is CUDA's.
  explicit CudaError(const std::string& message, int native_code = 0);
  ~CudaError() override;
};

/// A SystemError from the current errno, with the message "what: strerror(errno)".
[[nodiscard]] CHAINMAIL_API SystemError system_error(const std::string& what);

}  // namespace chainmail

#endif  // CHAINMAIL_ERROR_H_
