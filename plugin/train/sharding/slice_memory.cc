// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/slice_memory.h"

#include <memory>

#include <ATen/ATen.h>

#include <chainmail/error.h>

#include "plugin/train/sharding/page_memory.h"

namespace chainmail::internal {

namespace {

// The address of this function is the mark.
void free_slice(void* memory) { delete static_cast<c10::DataPtr*>(memory); }

}  // namespace

at::Tensor make_slice(std::int64_t count, c10::ScalarType dtype) {
  const auto bytes = static_cast<std::size_t>(count) * c10::elementSize(dtype);
  auto memory = std::make_unique<c10::DataPtr>(allocate_pages(bytes));
  void* const data = memory->get();
  c10::DataPtr marked(data, memory.release(), free_slice, c10::Device(c10::kCPU));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(marked),
                             /*allocator=*/nullptr, /*resizable=*/false);
  return at::empty({0}, c10::TensorOptions(dtype)).set_(storage, 0, {count}, {1});
}

bool is_slice(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         tensor.storage().data_ptr().get_deleter() == &free_slice;
}

void refuse_slice(const std::string& name, const at::Tensor& tensor, const char* what,
                  const char* instead) {
  if (!is_slice(tensor)) return;
  throw InvalidArgument(std::string(what) + ": '" + name +
                        "' is this rank's slice of a parameter of a Sharded module, another one "
                        "on each rank; " +
                        instead);
}

}  // namespace chainmail::internal
