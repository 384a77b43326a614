// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/error.h>
#include <chainmail/objects.h>

#include <ATen/ATen.h>

#include "plugin/train/communicator/fields.h"
#include "plugin/train/communicator/values.h"

namespace chainmail {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw MismatchError(what + ": the ranks do not run the same program");
}

}  // namespace

std::string_view ObjectReader::take(std::size_t bytes) {
  if (bytes > bytes_.size()) {
    fail("an object ends after " + std::to_string(bytes_.size()) + " bytes where it needs " +
         std::to_string(bytes) + " more");
  }
  const std::string_view taken = bytes_.substr(0, bytes);
  bytes_.remove_prefix(bytes);
  return taken;
}

std::size_t ObjectReader::get_count(std::size_t element_bytes) {
  const auto count = ObjectCodec<std::uint64_t>::read(*this);
  if (element_bytes != 0 && count > remaining() / element_bytes) {
    fail("an object of " + std::to_string(count) + " elements in " + std::to_string(remaining()) +
         " bytes");
  }
  return count;
}

void ObjectReader::expect_end() const {
  if (!bytes_.empty()) fail("an object is followed by " + std::to_string(bytes_.size()) + " bytes");
}

namespace internal {

void write_tensor(const at::Tensor& tensor, ObjectWriter& writer) {
  const TensorShape shape = tensor.defined() ? shape_of(tensor) : TensorShape{};
  ObjectCodec<TensorShape>::write(shape, writer);
  if (tensor.defined()) {
    const at::Tensor values = plain_values(tensor, "an object");
    writer.put(values.const_data_ptr(), values.nbytes());
  }
}

at::Tensor read_tensor(ObjectReader& reader) {
  const auto shape = ObjectCodec<TensorShape>::read(reader);
  if (shape.type == kNoTensor) return {};
  if (bytes_of(shape) > reader.remaining()) {
    fail("a tensor of " + std::to_string(bytes_of(shape)) + " bytes in " +
         std::to_string(reader.remaining()));
  }
  const at::Tensor tensor = empty_of(shape);
  reader.get(tensor.data_ptr(), tensor.nbytes());
  return tensor;
}

}  // namespace internal
}  // namespace chainmail
