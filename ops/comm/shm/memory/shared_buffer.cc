// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/memory/shared_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/comm/shm/memory/memory_file.h"

namespace chainmail::ops::shm {
namespace {

constexpr std::size_t kPage = 4096;

SystemError failed(std::size_t bytes, const std::string& why, int code) {
  return {"cannot share " + std::to_string(bytes >> 10) + " KiB of memory between the ranks of " +
              "this node: " + why,
          code};
}

SystemError call_failed(std::size_t bytes, const std::string& call, int code) {
  return failed(bytes, call + ": " + std::strerror(code), code);
}

}  // namespace

std::size_t SharedBuffer::rounded(std::size_t bytes) noexcept {
  return (bytes + kPage - 1) / kPage * kPage;
}

internal::UniqueFd SharedBuffer::make_file(std::size_t ranks, std::size_t part_bytes) {
  const std::size_t bytes = ranks * part_bytes;
  rlimit limit{};
  // Beyond this limit ftruncate() would end the process by SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    throw call_failed(bytes, "limit on file sizes (ulimit -f)", EFBIG);
  }
  internal::UniqueFd file(::memfd_create("chainmail-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) throw call_failed(bytes, "memfd_create", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw call_failed(bytes, "ftruncate", errno);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw call_failed(bytes, "fcntl(F_ADD_SEALS)", errno);
  }
  return file;
}

BufferOffer SharedBuffer::offer(const internal::UniqueFd& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw call_failed(0, "fstat", errno);
  return {::getpid(), file.get(), status.st_dev, status.st_ino,
          static_cast<std::size_t>(status.st_size)};
}

internal::UniqueFd SharedBuffer::open_file(const BufferOffer& offer) {
  const std::string path = "/proc/" + std::to_string(offer.pid) + "/fd/" + std::to_string(offer.fd);
  try {
    internal::UniqueFd file = open_memory_file(path, offer.bytes);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) throw system_error("fstat");
    if (status.st_dev == offer.device && status.st_ino == offer.inode) return file;
  } catch (const SystemError& error) {
    throw failed(offer.bytes, path + ": " + error.what(), error.native_code());
  }
  throw failed(offer.bytes, path + ": it is another file", EPROTO);
}

SharedBuffer::SharedBuffer(const internal::UniqueFd& file, int own, std::size_t ranks,
                           std::size_t part_bytes)
    : ranks_(ranks), part_bytes_(part_bytes) {
  const auto begin = static_cast<off_t>(static_cast<std::size_t>(own) * part_bytes);
  int code = 0;
  do {
    code = ::posix_fallocate(file.get(), begin, static_cast<off_t>(part_bytes));
  } while (code == EINTR);
  if (code != 0) throw call_failed(part_bytes, "posix_fallocate", code);
  void* memory =
      ::mmap(nullptr, ranks * part_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw call_failed(ranks * part_bytes, "mmap", errno);
  memory_ = static_cast<std::byte*>(memory);
}

SharedBuffer::~SharedBuffer() { ::munmap(memory_, ranks_ * part_bytes_); }

}  // namespace chainmail::ops::shm
