// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/device/kernel_contestants.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/kernels/wire_block.h"
#include "plugin/tensor/element_type.h"
#include "tools/bench/device/device_time.h"

namespace chainmail::bench {
namespace {

// Of two ranks' mean: exact in 16 bits, so that all ways end with the same values.
constexpr double kScale = 0.5;
constexpr int kParts = 4;  // received halves, as between four nodes
constexpr int kOwn = 1;
constexpr int kShift = 8;  // their factor is 2^8: bfloat16 is not that near its end then
constexpr std::int64_t kAlignment = 32;  // elements of 16 bits; buckets align to 64 bytes

std::int64_t aligned(std::int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

// 1, 2, 3, 1, ... times `factor`.
at::Tensor pattern(std::int64_t count, double factor, at::TensorOptions options) {
  return at::arange(count, options.dtype(at::kInt)).remainder_(3).add_(1).to(options).mul_(factor);
}

/// Elements that differ, without a wait for each tensor.
std::int64_t count_different(at::TensorList got, at::TensorList expected) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    wrong += got[i].ne(expected[i]).sum().item<std::int64_t>();
  }
  return wrong;
}

ops::DeviceStream stream_of(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return {};
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return {guard.getStreamNativeHandle(guard.getStream(tensor.device()))};
}

/// Tensors in float32 and the buffer that they are packed into.
struct PackData {
  PackData(const KernelCase& what, c10::Device device, KernelPlace& place) : name(what.shapes) {
    half =
        internal::scalar_type_of(what.wire == ops::WireFormat::kFloat16 ? ops::DataType::kFloat16
                                                                        : ops::DataType::kBFloat16);
    half_type = internal::data_type_of(half).value();
    const at::TensorOptions wide = at::TensorOptions(at::kFloat).device(device);
    std::vector<ops::PackedTensor> packed;
    std::int64_t offset = 0;
    for (const Shape& shape : parse_shapes(what.shapes)) {
      const std::int64_t count = element_count(shape);
      values.push_back(pattern(count, 1 / kScale, wide).view(shape));
      tensors.push_back(values.back().clone());
      packed.push_back({tensors.back().mutable_data_ptr(), ops::DataType::kFloat32,
                        static_cast<std::size_t>(count), static_cast<std::size_t>(offset)});
      offsets.push_back(offset);
      offset += aligned(count);
    }
    buffer = at::zeros({offset}, wide.dtype(half));
    flat = at::zeros({offset}, wide);
    bucket = at::zeros_like(buffer);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      parts.push_back(buffer.narrow(0, offsets[i], tensors[i].numel()).view(tensors[i].sizes()));
      expected.push_back(values[i].mul(kScale).to(half));
    }
    flag = at::zeros({1}, wide.dtype(at::kInt));
    table = place.make_pack(packed);
  }

  std::uint32_t* flag_word() const { return static_cast<std::uint32_t*>(flag.mutable_data_ptr()); }
  ops::DeviceStream stream() const { return stream_of(buffer); }

  std::string name;
  at::ScalarType half = at::kHalf;
  ops::DataType half_type = ops::DataType::kFloat16;
  std::vector<at::Tensor> values;    // what is packed
  std::vector<at::Tensor> tensors;   // the same, and where unpacking writes
  std::vector<at::Tensor> parts;     // of the buffer, one per tensor
  std::vector<at::Tensor> expected;  // of the parts
  std::vector<std::int64_t> offsets;
  at::Tensor buffer;
  at::Tensor flat;    // a bucket that the tensors would be views of
  at::Tensor bucket;  // the same in 16 bits
  at::Tensor flag;
  std::unique_ptr<ops::DevicePack> table;
};

/// Messages that nodes have sent, their halves as they are; the message of their sum, and of one
/// node's float32 elements.
struct WireData {
  WireData(const KernelCase& what, c10::Device device)
      : count(static_cast<std::int64_t>(bench::element_count(what))), wire(what.wire) {
    const auto half = what.wire == ops::WireFormat::kFloat16 ? at::kHalf : at::kBFloat16;
    const at::TensorOptions options = at::TensorOptions(half).device(device);
    constexpr auto kBlock = static_cast<std::int64_t>(ops::kWireBlock);
    blocks = std::max<std::int64_t>((count + kBlock - 1) / kBlock, 1);
    const auto halves = static_cast<std::int64_t>(ops::wire_stride(part()) / 2);
    result = at::zeros({halves}, options);
    if (what.op == "add") {
      parts = at::zeros({kParts, halves}, options);
      for (int r = 0; r < kParts; ++r) {
        parts[r].narrow(0, 0, count).copy_(pattern(count, std::ldexp(r + 1, kShift), options));
        factors(parts[r]).fill_(kShift);
      }
      own = parts[kOwn].clone();
      wide = pattern(count, kParts * (kParts + 1) / 2, options.dtype(at::kFloat));
    } else {
      wide = pattern(count, 1, options.dtype(at::kFloat));
      own = at::zeros({halves}, options);
      own.narrow(0, 0, count).copy_(wide);
      target = at::zeros_like(wide);
    }
  }
  std::size_t part() const { return static_cast<std::size_t>(blocks) * ops::kWireBlock; }
  /// Of a message: an exponent for every block.
  at::Tensor factors(const at::Tensor& message) const {
    return message.view(at::kChar).narrow(0, static_cast<std::int64_t>(2 * part()), blocks);
  }
  /// Elements of the result, with the factors of their blocks, that are not those of `wide`.
  std::int64_t count_wrong() const {
    const at::Tensor factor = factors(result)
                                  .to(at::kFloat)
                                  .neg()
                                  .exp2()
                                  .repeat_interleave(static_cast<std::int64_t>(ops::kWireBlock))
                                  .narrow(0, 0, count);
    const at::Tensor sums = result.narrow(0, 0, count).to(at::kFloat).mul(factor);
    return sums.ne(wide).sum().item<std::int64_t>();
  }
  ops::DeviceStream stream() const { return stream_of(result); }

  std::int64_t count;
  std::int64_t blocks = 0;
  ops::WireFormat wire;
  at::Tensor parts, own, result, wide, target;
};

/// One way to do it.
struct Way {
  std::string name;
  std::string description;
  std::function<void()> clear;  ///< the results
  std::function<void()> run;
  std::function<std::int64_t()> count_wrong;
};

class KernelContestant final : public Contestant {
 public:
  KernelContestant(Way way, c10::Device device) : way_(std::move(way)), device_(device) {}
  const std::string& name() const noexcept override { return way_.name; }
  std::string description() const override { return way_.description; }
  void prepare(const Case& /*what*/) override {}
  std::int64_t count_wrong(const Case& /*what*/) override {
    way_.clear();
    way_.run();
    return way_.count_wrong();
  }
  Sample time(const Case& what) override { return time_on_device(device_, what.repeats, way_.run); }

 private:
  const Way way_;
  const c10::Device device_;
};

/// As many bytes read and written as the kernel reads and writes together.
Way copy_of(std::size_t moved, c10::Device device) {
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(device);
  const auto half = static_cast<std::int64_t>(std::max<std::size_t>(moved / 2, 1));
  const at::Tensor source = at::ones({half}, bytes);
  const at::Tensor target = at::zeros({half}, bytes);
  return {"copy", "a copy within the device that moves as many bytes", [=] { target.zero_(); },
          [=] { target.copy_(source); },
          [=] { return target.ne(source).sum().item<std::int64_t>(); }};
}

using PackPointer = std::shared_ptr<PackData>;

std::vector<Way> ways_to_pack(const PackPointer& data) {
  const auto clear = [data] { data->buffer.zero_(); };
  const auto count_wrong = [data] { return count_different(data->parts, data->expected); };
  std::vector<Way> ways;
  ways.push_back({"chainmail", "one launch over a table in device memory", clear,
                  [data] {
                    data->table->pack(data->buffer.mutable_data_ptr(), data->half_type, kScale,
                                      data->flag_word(), data->stream());
                  },
                  count_wrong});
  ways.push_back({"torch", "to(half).div_() and copy_() for each tensor", clear,
                  [data] {
                    for (std::size_t i = 0; i < data->tensors.size(); ++i) {
                      data->parts[i].copy_(data->tensors[i].to(data->half).div_(1 / kScale));
                    }
                  },
                  count_wrong});
  ways.push_back(
      {"foreach", "_foreach_mul() and _foreach_copy_()", clear,
       [data] { at::_foreach_copy_(data->parts, at::_foreach_mul(data->tensors, kScale)); },
       count_wrong});
  // DistributedDataParallel's: gradients that are views of their bucket need no gathering.
  for (std::size_t i = 0; i < data->tensors.size(); ++i) {
    data->flat.narrow(0, data->offsets[i], data->tensors[i].numel())
        .copy_(data->tensors[i].flatten());
  }
  ways.push_back({"bucket", "to(half).div_() of one bucket, which all tensors are views of already",
                  [data] { data->bucket.zero_(); },
                  [data] { data->bucket = data->flat.to(data->half).div_(1 / kScale); },
                  [data] {
                    std::int64_t wrong = 0;
                    for (std::size_t i = 0; i < data->tensors.size(); ++i) {
                      const at::Tensor part =
                          data->bucket.narrow(0, data->offsets[i], data->tensors[i].numel());
                      wrong += part.ne(data->expected[i].flatten()).sum().item<std::int64_t>();
                    }
                    return wrong;
                  }});
  return ways;
}

std::vector<Way> ways_to_unpack(const PackPointer& data) {
  for (std::size_t i = 0; i < data->parts.size(); ++i) data->parts[i].copy_(data->values[i]);
  const auto clear = [data] {
    for (const at::Tensor& tensor : data->tensors) tensor.zero_();
  };
  const auto count_wrong = [data] { return count_different(data->tensors, data->values); };
  std::vector<Way> ways;
  ways.push_back({"chainmail", "one launch over a table in device memory", clear,
                  [data] {
                    data->table->unpack(data->buffer.mutable_data_ptr(), data->half_type, 1.0,
                                        data->flag_word(), data->stream());
                  },
                  count_wrong});
  ways.push_back({"torch", "copy_() for each tensor", clear,
                  [data] {
                    for (std::size_t i = 0; i < data->tensors.size(); ++i) {
                      data->tensors[i].copy_(data->parts[i]);
                    }
                  },
                  count_wrong});
  ways.push_back({"foreach", "_foreach_copy_()", clear,
                  [data] { at::_foreach_copy_(data->tensors, data->parts); }, count_wrong});
  ways.push_back(
      {"bucket", "copy_() into one bucket, which all tensors are views of",
       [data] { data->flat.zero_(); }, [data] { data->flat.copy_(data->buffer); },
       [data] { return data->flat.ne(data->buffer.to(at::kFloat)).sum().item<std::int64_t>(); }});
  return ways;
}

std::vector<Way> ways_to_add(const KernelCase& what, c10::Device device, KernelPlace& place) {
  const auto data = std::make_shared<WireData>(what, device);
  const auto clear = [data] { data->result.zero_(); };
  const auto count_wrong = [data] { return data->count_wrong(); };
  std::vector<Way> ways;
  ways.push_back(
      {"chainmail",
       "received halves of " + std::to_string(kParts) + " nodes added in float32, one launch",
       clear,
       [data, &place] {
         place.add_parts(data->result.mutable_data_ptr(), data->parts.data_ptr(), data->part(),
                         kParts, kOwn, data->own.data_ptr(), static_cast<std::size_t>(data->count),
                         data->wire, data->stream());
       },
       count_wrong});
  ways.push_back({"torch", "sum() in float32 of a matrix of halves, and copy_()",
                  [data] {
                    data->result.zero_();
                    data->factors(data->result).fill_(kShift);
                  },
                  [data] {
                    data->result.narrow(0, 0, data->count)
                        .copy_(
                            at::sum(data->parts.narrow(1, 0, data->count), {0}, false, at::kFloat));
                  },
                  count_wrong});
  return ways;
}

std::vector<Way> ways_to_round(const KernelCase& what, c10::Device device, KernelPlace& place) {
  const auto data = std::make_shared<WireData>(what, device);
  std::vector<Way> ways;
  ways.push_back({"chainmail", "float32 rounded to halves with a factor per block, one launch",
                  [data] { data->result.zero_(); },
                  [data, &place] {
                    place.round_parts(data->result.mutable_data_ptr(), data->part(),
                                      data->wide.data_ptr(), static_cast<std::size_t>(data->count),
                                      data->wire, data->stream());
                  },
                  [data] { return data->count_wrong(); }});
  ways.push_back({"torch", "copy_(), without factors", [data] { data->result.zero_(); },
                  [data] { data->result.narrow(0, 0, data->count).copy_(data->wide); },
                  [data] { return data->count_wrong(); }});
  return ways;
}

std::vector<Way> ways_to_widen(const KernelCase& what, c10::Device device, KernelPlace& place) {
  const auto data = std::make_shared<WireData>(what, device);
  const auto clear = [data] { data->target.zero_(); };
  const auto count_wrong = [data] {
    return data->target.ne(data->wide).sum().item<std::int64_t>();
  };
  std::vector<Way> ways;
  ways.push_back({"chainmail", "halves and their factors into float32, one launch", clear,
                  [data, &place] {
                    place.widen_parts(data->target.mutable_data_ptr(), data->own.data_ptr(),
                                      data->part(), static_cast<std::size_t>(data->count),
                                      data->wire, data->stream());
                  },
                  count_wrong});
  ways.push_back({"torch", "copy_(), without factors", clear,
                  [data] { data->target.copy_(data->own.narrow(0, 0, data->count)); },
                  count_wrong});
  return ways;
}

}  // namespace

std::vector<std::string> kernel_operations() { return {"pack", "unpack", "round", "add", "widen"}; }

std::size_t element_count(const KernelCase& what) {
  std::int64_t count = 0;
  for (const Shape& shape : parse_shapes(what.shapes)) count += element_count(shape);
  return static_cast<std::size_t>(count);
}

std::size_t size_in_bytes(const KernelCase& what) {
  return element_count(what) * (what.op == "add" ? 2 : sizeof(float));
}

double moved_per_byte(const KernelCase& what) {
  // Four bytes on one side and two on the other; or all halves read, and one written.
  return what.op == "add" ? kParts + 1 : 1.5;
}

std::vector<std::unique_ptr<Contestant>> make_kernel_contestants(const KernelCase& what,
                                                                 c10::Device device,
                                                                 KernelPlace& place) {
  if (what.wire == ops::WireFormat::kNative) {
    throw InvalidArgument("kernels are measured with --wire float16 or bfloat16");
  }
  std::vector<Way> ways;
  if (what.op == "pack") {
    ways = ways_to_pack(std::make_shared<PackData>(what, device, place));
  } else if (what.op == "unpack") {
    ways = ways_to_unpack(std::make_shared<PackData>(what, device, place));
  } else if (what.op == "add") {
    ways = ways_to_add(what, device, place);
  } else if (what.op == "round") {
    ways = ways_to_round(what, device, place);
  } else if (what.op == "widen") {
    ways = ways_to_widen(what, device, place);
  } else {
    throw InvalidArgument("unknown kernel \"" + what.op +
                          "\"; valid are pack, unpack, round, add and widen");
  }
  const auto moved =
      static_cast<std::size_t>(static_cast<double>(size_in_bytes(what)) * moved_per_byte(what));
  ways.insert(ways.begin() + 1, copy_of(moved, device));
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (Way& way : ways) {
    contestants.push_back(std::make_unique<KernelContestant>(std::move(way), device));
  }
  return contestants;
}

}  // namespace chainmail::bench
