// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/sharded/unit.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <chainmail/error.h>

#include "base/bytes.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/gradients/gradient_bucket.h"
#include "plugin/train/sharding/page_memory.h"
#include "plugin/train/sharding/slice_memory.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

const ops::Topology& topology_of(Communicator& communicator) {
  return communicator.impl().group->topology();
}

FlatLayout layout_of(const std::vector<NamedTensor>& parameters, const ops::Topology& topology) {
  std::vector<std::size_t> counts;
  for (const NamedTensor& parameter : parameters) {
    counts.push_back(static_cast<std::size_t>(parameter.tensor.numel()));
  }
  return lay_out(counts, topology);
}

std::uint32_t hash_of(const std::string& name, std::uint64_t number,
                      const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  return NumberHash().add(hash64(name)).add(number).add(hash_shapes(tensors)).value();
}

void take_values_of_root(Communicator& communicator, const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor.detach());
  communicator.bcast(tensors);
}

// The elements of a part, as they lie in memory.
std::byte* at_part(const at::Tensor& tensor, std::size_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) +
         element * c10::elementSize(tensor.scalar_type());
}

// Laid out like the parameter, so that a piece of it is the same piece of the parameter.
at::Tensor gradient_like(const UnitParameter& parameter) {
  const at::Tensor gradient = dense_gradient({parameter.name, parameter.full});
  if (gradient.strides() == parameter.full.strides() && !gradient.is_neg()) return gradient;
  return at::empty_strided(parameter.full.sizes(), parameter.full.strides(),
                           parameter.full.options())
      .copy_(gradient);
}

}  // namespace

Unit::Unit(std::string name, std::uint64_t number, const std::vector<NamedTensor>& parameters,
           std::shared_ptr<Communicator> communicator, std::function<void(std::size_t)> ready)
    : name_(std::move(name)),
      number_(number),
      communicator_(std::move(communicator)),
      layout_(layout_of(parameters, topology_of(*communicator_))),
      hash_(hash_of(name_, number_, parameters)),
      hooks_(parameters, std::move(ready)) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    parameters_.push_back({parameter.name, parameter.tensor, {}});
  }
  take_values_of_root(*communicator_, parameters);
  Block block;
  block.bytes = block_bytes();
  block.memory = allocate_pages(block.bytes);
  move_to(block);
  make_slices();
  follow_slices();
  // The memory ends with this function. That of the module's parameters is a hole in the heap,
  // which small pieces would break up before the next unit is made.
  static_cast<void>(empty());
  trim_heap();
}

Unit::~Unit() {
  if (is_full()) static_cast<void>(empty());
}

std::size_t Unit::block_bytes() const noexcept {
  return most_elements(layout_) * c10::elementSize(parameters_.front().full.scalar_type());
}

// All parameters get one storage, whose memory can be changed behind them.
void Unit::move_to(const Block& block) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), block.bytes,
                             c10::DataPtr(block.data(), c10::Device(c10::kCPU)),
                             /*allocator=*/nullptr, /*resizable=*/false);
  const auto end = static_cast<std::int64_t>(layout_.bounds.back());
  flat_ = at::empty({0}, parameters_.front().full.options().requires_grad(false))
              .set_(storage, 0, {end}, {1});
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& full = parameters_[i].full;
    const auto begin = static_cast<std::int64_t>(layout_.places[i].begin);
    const at::Tensor place = full.is_non_overlapping_and_dense()
                                 ? flat_.as_strided(full.sizes(), full.strides(), begin)
                                 : flat_.narrow(0, begin, full.numel()).view(full.sizes());
    place.copy_(full.detach());
    full.set_data(place.detach());
  }
}

void Unit::make_slices() {
  const int rank = communicator_->rank();
  const auto length = static_cast<std::int64_t>(layout_.length_of(rank));
  slice_ = make_slice(length, flat_.scalar_type());
  if (length > 0)
    std::memcpy(slice_.data_ptr(), at_part(flat_, layout_.begin_of(rank)), slice_.nbytes());
  for (UnitParameter& parameter : parameters_) {
    parameter.slice = slice_.narrow(0, 0, 0).detach();
    own_.push_back({own_.size(), 0, 0});
  }
  for (const SlicePart& part : layout_.parts_of(rank)) {
    const std::size_t begin =
        layout_.places[part.parameter].begin + part.begin - layout_.begin_of(rank);
    own_[part.parameter] = {part.parameter, begin, begin + part.end - part.begin};
    parameters_[part.parameter].slice =
        slice_
            .narrow(0, static_cast<std::int64_t>(begin),
                    static_cast<std::int64_t>(part.end - part.begin))
            .detach();
  }
  for (const UnitParameter& parameter : parameters_) {
    parameter.slice.set_requires_grad(parameter.full.requires_grad());
  }
}

void Unit::fill(std::unique_ptr<Block> block) {
  block_ = std::move(block);
  whole_version_ = slice_version();
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr(block_->data(), c10::Device(c10::kCPU)));
  storage.set_nbytes(block_->bytes);
}

std::unique_ptr<Block> Unit::empty() {
  c10::StorageImpl& storage = *flat_.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  storage.set_nbytes(std::size_t{0});
  return std::exchange(block_, nullptr);
}

ops::Collective Unit::gather_into(Block& block, Pass pass) const {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllGather;
  collective.dtype = engine_type(flat_.scalar_type(), "a Sharded module");
  collective.input = static_cast<const std::byte*>(slice_.const_data_ptr());
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    collective.receive_counts.push_back(layout_.length_of(rank));
    collective.output_parts.push_back(block.data() + layout_.begin_of(rank) * element_bytes());
  }
  collective.shape_hash = NumberHash().add(hash_).add(static_cast<std::uint64_t>(pass)).value();
  collective.describe_shapes = [name = name_, pass, count = layout_.bounds.back()] {
    return "[" + std::to_string(count) + "], the parameters of unit '" + name + "' for " +
           (pass == Pass::kForward ? "forward" : "backward");
  };
  return collective;
}

// Memory of another parameter of the unit is not its own, either.
void Unit::check_memory(std::size_t index) const {
  const UnitParameter& parameter = parameters_[index];
  const SlicePart& own = own_[index];
  const ParameterPlace& place = layout_.places[index];
  const auto lies_at = [](const at::Tensor& tensor, const at::Tensor& flat, std::size_t begin,
                          std::size_t count) {
    return tensor.is_alias_of(flat) && tensor.scalar_type() == flat.scalar_type() &&
           tensor.numel() == static_cast<std::int64_t>(count) &&
           (count == 0 || tensor.storage_offset() == static_cast<std::int64_t>(begin));
  };
  if (lies_at(parameter.full, flat_, place.begin, place.count) &&
      lies_at(parameter.slice, slice_, own.begin, own.end - own.begin)) {
    return;
  }
  throw InvalidArgument(
      "unit '" + name_ + "': parameter '" + parameter.name +
      "', or this rank's slice of it, has been given memory or a shape that is not the unit's: " +
      c10::str("the parameter is ", parameter.full.sizes(), " of the unit's ", place.count,
               " elements, the slice ", parameter.slice.sizes(), " of its ", own.end - own.begin) +
      ", as torch::load() and set_data() do; write values into slices with copy_(), and load "
      "modules before they become Sharded");
}

void Unit::follow_slices() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) check_memory(i);
  trained_ = 0;
  for (const UnitParameter& parameter : parameters_) {
    const bool is_trained = parameter.slice.requires_grad();
    if (parameter.full.requires_grad() != is_trained) parameter.full.set_requires_grad(is_trained);
    trained_ += is_trained ? 1 : 0;
  }
}

std::optional<std::size_t> Unit::find(const at::Tensor& tensor) const noexcept {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].full.is_same(tensor)) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> Unit::find_tied(const at::Tensor& tensor) const {
  if (!tensor.has_storage() || !tensor.is_alias_of(flat_) || find(tensor)) return std::nullopt;
  std::int64_t end = tensor.storage_offset() + 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) end += (tensor.size(d) - 1) * tensor.stride(d);
  for (std::size_t i = 0; i < parameters_.size() && tensor.numel() > 0; ++i) {
    const ParameterPlace& place = layout_.places[i];
    if (static_cast<std::int64_t>(place.begin) < end &&
        tensor.storage_offset() < static_cast<std::int64_t>(place.begin + place.count)) {
      return i;
    }
  }
  return std::nullopt;
}

bool Unit::may_be_stepped() const {
  return std::ranges::any_of(
      parameters_, [](const UnitParameter& parameter) { return parameter.slice.grad().defined(); });
}

bool Unit::has_gradients() const {
  return std::ranges::any_of(parameters_,
                             [](const UnitParameter& one) { return one.full.grad().defined(); });
}

GradientLayout Unit::pack_gradients(Block& block) {
  const at::NoGradGuard no_grad;
  std::vector<char> is_present;
  for (const UnitParameter& one : parameters_)
    is_present.push_back(one.full.grad().defined() ? 1 : 0);
  GradientLayout layout =
      gradients_of(layout_, is_present, communicator_->rank(), topology_of(*communicator_));
  std::vector<at::Tensor> gradients(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (is_present[i] == 0) continue;
    gradients[i] = gradient_like(parameters_[i]);
  }
  std::size_t end = 0;
  const auto clear_up_to = [&](std::size_t begin) {  // gaps are added up, too
    std::memset(block.data() + end * element_bytes(), 0, (begin - end) * element_bytes());
  };
  for (const GradientPiece& piece : layout.pieces) {
    const SlicePart& part = piece.part;
    clear_up_to(piece.offset);
    end = piece.offset + part.end - part.begin;
    std::memcpy(block.data() + piece.offset * element_bytes(),
                at_part(gradients[part.parameter], part.begin),
                (part.end - part.begin) * element_bytes());
  }
  clear_up_to(layout.count);
  drop_gradients();
  return layout;
}

std::string Unit::describe(const GradientLayout& layout) const {
  std::string missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (layout.is_present[i] == 0) missing += " " + parameters_[i].name;
  }
  return "[" + std::to_string(layout.count) + "], the gradients of unit '" + name_ + "'" +
         (missing.empty() ? "" : " but for" + missing);
}

ops::Collective Unit::mean_of(Block& block, const GradientLayout& layout) const {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(flat_.scalar_type(), "a Sharded module");
  collective.reduce_op = ops::ReduceOp::kAvg;
  collective.count = layout.count;
  collective.output = block.data();
  collective.wire = communicator_->impl().group->options().wire;
  collective.cut = layout.cut;
  NumberHash hash;
  hash.add(hash_);
  for (const char is_present : layout.is_present) hash.add(is_present == 0 ? 0 : 1);
  collective.shape_hash = hash.value();
  collective.describe_shapes = [text = describe(layout)] { return text; };
  return collective;
}

// The same memory every time, unless a program has kept a gradient that lies in it.
void Unit::make_room_for_gradients() {
  if (gradient_.defined()) {
    const auto lies_there = [&](const UnitParameter& one) {
      return one.slice.grad().defined() && one.slice.grad().is_alias_of(gradient_);
    };
    const auto own = 1 + static_cast<std::size_t>(std::ranges::count_if(parameters_, lies_there));
    if (gradient_.storage().use_count() <= own) return;
  }
  gradient_ = make_slice(slice_.numel(), slice_.scalar_type());
}

void Unit::take_mean(const Block& block, const GradientLayout& layout) {
  const at::NoGradGuard no_grad;
  make_room_for_gradients();
  const std::size_t slice_begin = layout_.begin_of(communicator_->rank());
  std::vector<char> is_left = layout.is_present;
  for (const GradientPiece& piece : layout.own) {
    const std::size_t index = piece.part.parameter;
    is_left[index] = 0;
    const at::Tensor place = gradient_.narrow(
        0, static_cast<std::int64_t>(layout_.places[index].begin + piece.part.begin - slice_begin),
        static_cast<std::int64_t>(piece.part.end - piece.part.begin));
    std::byte* const mean = block.data() + piece.offset * element_bytes();
    at::Tensor& held = parameters_[index].slice.mutable_grad();
    if (held.defined()) {
      held.add_(at::from_blob(mean, place.sizes(), place.options()));
    } else {
      std::memcpy(place.data_ptr(), mean, place.nbytes());
      held = place.detach();
    }
  }
  // A parameter of which this rank has nothing has a gradient all the same, as on the other ranks.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& held = parameters_[i].slice.mutable_grad();
    if (is_left[i] != 0 && !held.defined()) held = gradient_.narrow(0, 0, 0).detach();
  }
}

void Unit::drop_gradients() {
  for (const UnitParameter& parameter : parameters_) parameter.full.mutable_grad().reset();
}

}  // namespace chainmail::internal
