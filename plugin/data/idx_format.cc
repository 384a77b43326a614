// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/data/idx_format.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include <zlib.h>

#include "base/error.h"

namespace chainmail::internal {

namespace {

constexpr unsigned kUnsignedByte = 0x08;
constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kDimBytes = 4;
constexpr unsigned kMaxDims = 8;  // images need 3; more is surely damage

unsigned byte_at(std::span<const std::byte> bytes, std::size_t offset) {
  return std::to_integer<unsigned>(bytes[offset]);
}

[[noreturn]] void fail(const std::string& file, std::size_t offset, const std::string& what) {
  throw InvalidArgument(file + ", offset " + std::to_string(offset) + ": " + what);
}

std::string hex(unsigned value) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02x", value);
  return text;
}

void need(std::span<const std::byte> bytes, std::size_t end, const std::string& file,
          const char* part) {
  if (bytes.size() < end) {
    fail(file, bytes.size(),
         std::string("the file ends inside the ") + part + ", which takes " + std::to_string(end) +
             " bytes; it is truncated or no IDX file");
  }
}

struct InflateEnd {
  void operator()(z_stream* stream) const noexcept { inflateEnd(stream); }
};

// zlib counts in 32 bits, so large buffers are handed over in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30;

}  // namespace

IdxHead parse_idx(std::span<const std::byte> bytes, const std::string& file) {
  need(bytes, kMagicBytes, file, "magic number");
  if (byte_at(bytes, 0) != 0 || byte_at(bytes, 1) != 0) {
    fail(file, 0,
         "found " + hex(byte_at(bytes, 0)) + " " + hex(byte_at(bytes, 1)) +
             " where an IDX file has two zero bytes");
  }
  if (byte_at(bytes, 2) != kUnsignedByte) {
    fail(file, 2,
         "element type " + hex(byte_at(bytes, 2)) + "; only unsigned bytes (0x08) can be read");
  }
  const unsigned dim_count = byte_at(bytes, 3);
  if (dim_count < 1 || dim_count > kMaxDims) {
    fail(file, 3,
         std::to_string(dim_count) + " dimensions; expected 1 to " + std::to_string(kMaxDims));
  }
  IdxHead head;
  head.data_begin = kMagicBytes + dim_count * kDimBytes;
  need(bytes, head.data_begin, file, "dimensions");
  std::uint64_t elements = 1;
  for (std::size_t offset = kMagicBytes; offset < head.data_begin; offset += kDimBytes) {
    const std::uint64_t dim = std::uint64_t{byte_at(bytes, offset)} << 24 |
                              byte_at(bytes, offset + 1) << 16 | byte_at(bytes, offset + 2) << 8 |
                              byte_at(bytes, offset + 3);
    head.dims.push_back(static_cast<std::int64_t>(dim));
    if (dim != 0 && elements > std::numeric_limits<std::uint64_t>::max() / 2 / dim) {
      fail(file, offset, "the dimensions multiply to more than 2^63 elements");
    }
    elements *= dim;
  }
  const std::uint64_t present = bytes.size() - head.data_begin;
  if (present != elements) {
    fail(file, bytes.size(),
         "the dimensions ask for " + std::to_string(elements) + " bytes of data, " +
             std::to_string(present) + " are there; " +
             (present < elements ? "the file is truncated" : "there is something after its end"));
  }
  return head;
}

bool is_gzip(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 2 && byte_at(bytes, 0) == 0x1f && byte_at(bytes, 1) == 0x8b;
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, const std::string& file,
                              std::size_t limit) {
  z_stream stream{};
  // 16 more than the window's bits: a gzip head and its checksum are required.
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) {
    throw InvalidArgument(file + ": zlib cannot start: " + (stream.msg ? stream.msg : "no memory"));
  }
  const std::unique_ptr<z_stream, InflateEnd> owner(&stream);
  std::vector<std::byte> result;
  std::size_t consumed = 0;
  std::size_t produced = 0;
  for (;;) {
    if (produced == result.size()) {
      if (produced >= limit) {
        fail(file, consumed, "unpacks to more than " + std::to_string(limit) + " bytes");
      }
      result.resize(std::min(limit, std::max<std::size_t>(result.size() * 2, bytes.size() * 4)));
    }
    const std::size_t input = std::min(bytes.size() - consumed, kPiece);
    const std::size_t output = std::min(result.size() - produced, kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(input);
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + produced);
    stream.avail_out = static_cast<uInt>(output);
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed += input - stream.avail_in;
    produced += output - stream.avail_out;
    if (status == Z_STREAM_END) {
      if (consumed == bytes.size()) break;
      inflateReset(&stream);  // another member follows
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(file, consumed,
           std::string("damaged gzip data: ") + (stream.msg ? stream.msg : "error"));
    } else if (consumed == bytes.size() && stream.avail_out != 0) {
      fail(file, consumed, "the gzip data ends early; the file is truncated");
    }
  }
  result.resize(produced);
  return result;
}

}  // namespace chainmail::internal
