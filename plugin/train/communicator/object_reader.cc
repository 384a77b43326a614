// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/error.h>
#include <chainmail/objects.h>

#include <ATen/ATen.h>

#include "plugin/train/communicator/values.h"

namespace chainmail {

std::string_view ObjectReader::take(std::size_t bytes) {
  if (bytes > bytes_.size()) {
    throw MismatchError("an object ends after " + std::to_string(bytes_.size()) +
                        " bytes where it needs " + std::to_string(bytes) +
                        " more: the ranks do not run the same program");
  }
  const std::string_view taken = bytes_.substr(0, bytes);
  bytes_.remove_prefix(bytes);
  return taken;
}

std::size_t ObjectReader::get_count(std::size_t element_bytes) {
  std::uint64_t count = 0;
  get(&count, sizeof count);
  if (element_bytes != 0 && count > remaining() / element_bytes) {
    throw MismatchError("an object of " + std::to_string(count) + " elements in " +
                        std::to_string(remaining()) +
                        " bytes: the ranks do not run the same program");
  }
  return count;
}

void ObjectReader::expect_end() const {
  if (!bytes_.empty()) {
    throw MismatchError("an object is followed by " + std::to_string(bytes_.size()) +
                        " bytes: the ranks do not run the same program");
  }
}

namespace internal {

void write_tensor(const at::Tensor& tensor, ObjectWriter& writer) {
  const TensorShape shape = tensor.defined() ? shape_of(tensor) : TensorShape{};
  writer.put(&shape.type, sizeof shape.type);
  writer.put_count(shape.sizes.size());
  writer.put(shape.sizes.data(), shape.sizes.size() * sizeof(std::int64_t));
  if (tensor.defined()) {
    const at::Tensor values = plain_values(tensor, "an object");
    writer.put(values.const_data_ptr(), values.nbytes());
  }
}

at::Tensor read_tensor(ObjectReader& reader) {
  TensorShape shape;
  reader.get(&shape.type, sizeof shape.type);
  shape.sizes.resize(reader.get_count(sizeof(std::int64_t)));
  reader.get(shape.sizes.data(), shape.sizes.size() * sizeof(std::int64_t));
  if (shape.type == kNoTensor) {
    return {};
  }
  if (bytes_of(shape) > reader.remaining()) {
    throw MismatchError("a tensor of " + std::to_string(bytes_of(shape)) + " bytes in " +
                        std::to_string(reader.remaining()) +
                        ": the ranks do not run the same program");
  }
  const at::Tensor tensor = empty_of(shape);
  reader.get(tensor.data_ptr(), tensor.nbytes());
  return tensor;
}

}  // namespace internal
}  // namespace chainmail
