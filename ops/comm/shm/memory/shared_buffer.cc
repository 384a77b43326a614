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

SystemError failed(std::size_t bytes, const SystemError& why) {
  return {"cannot share " + std::to_string(bytes >> 10) + " KiB of memory between the ranks of " +
              "this node: " + why.what(),
          why.native_code()};
}

}  // namespace

std::size_t SharedBuffer::rounded(std::size_t bytes) noexcept {
  return (bytes + kPage - 1) / kPage * kPage;
}

internal::UniqueFd SharedBuffer::make_file(std::size_t ranks, std::size_t part_bytes) {
  try {
    return make_memory_file("chainmail-buffer", ranks * part_bytes, false);
  } catch (const SystemError& error) {
    throw failed(ranks * part_bytes, error);
  }
}

BufferOffer SharedBuffer::offer(const internal::UniqueFd& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw failed(0, system_error("fstat"));
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
    throw failed(offer.bytes, {path + ": " + error.what(), error.native_code()});
  }
  throw failed(offer.bytes, {path + ": it is another file", EPROTO});
}

SharedBuffer::SharedBuffer(const internal::UniqueFd& file, int own, std::size_t ranks,
                           std::size_t part_bytes)
    : ranks_(ranks), part_bytes_(part_bytes) {
  try {
    reserve(file, static_cast<std::size_t>(own) * part_bytes, part_bytes);
  } catch (const SystemError& error) {
    throw failed(part_bytes, error);
  }
  void* memory =
      ::mmap(nullptr, ranks * part_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw failed(ranks * part_bytes, system_error("mmap"));
  memory_ = static_cast<std::byte*>(memory);
}

SharedBuffer::~SharedBuffer() { ::munmap(memory_, ranks_ * part_bytes_); }

}  // namespace chainmail::ops::shm
