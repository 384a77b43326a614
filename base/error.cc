// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace chainmail {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kMismatch:
      return "MismatchError";
    case ErrorCode::kTimeout:
      return "TimeoutError";
    case ErrorCode::kPeer:
      return "PeerError";
    case ErrorCode::kSystem:
      return "SystemError";
    case ErrorCode::kMpi:
      return "MpiError";
    case ErrorCode::kNccl:
      return "NcclError";
    case ErrorCode::kCuda:
      return "CudaError";
    case ErrorCode::kCheckpoint:
      return "CheckpointError";
  }
  return "Error";
}

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}
Error::~Error() = default;

InvalidArgument::InvalidArgument(const std::string& message)
    : Error(ErrorCode::kInvalidArgument, message) {}
InvalidArgument::~InvalidArgument() = default;

MismatchError::MismatchError(const std::string& message) : Error(ErrorCode::kMismatch, message) {}
MismatchError::~MismatchError() = default;

TimeoutError::TimeoutError(const std::string& message, std::vector<int> missing_ranks)
    : Error(ErrorCode::kTimeout, message), missing_ranks_(std::move(missing_ranks)) {}
TimeoutError::~TimeoutError() = default;

PeerError::PeerError(const std::string& message, int peer_rank)
    : Error(ErrorCode::kPeer, message), peer_rank_(peer_rank) {}
PeerError::~PeerError() = default;

NativeError::NativeError(ErrorCode code, const std::string& message, int native_code)
    : Error(code, message), native_code_(native_code) {}
NativeError::~NativeError() = default;

SystemError::SystemError(const std::string& message, int native_code)
    : NativeError(ErrorCode::kSystem, message, native_code) {}
SystemError::~SystemError() = default;

MpiError::MpiError(const std::string& message, int native_code)
    : NativeError(ErrorCode::kMpi, message, native_code) {}
MpiError::~MpiError() = default;

NcclError::NcclError(const std::string& message, int native_code)
    : NativeError(ErrorCode::kNccl, message, native_code) {}
NcclError::~NcclError() = default;

CudaError::CudaError(const std::string& message, int native_code)
    : NativeError(ErrorCode::kCuda, message, native_code) {}
CudaError::~CudaError() = default;

SystemError system_error(const std::string& what) {
  const int code = errno;
  return {what + ": " + std::strerror(code), code};
}

}  // namespace chainmail
