// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// From a name and options to a communicator of this job, and from one to its parts.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include <chainmail/communicator.h>

#include "base/log.h"
#include "plugin/cuda/cuda_support.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/family.h"

namespace chainmail {

namespace {

constexpr std::chrono::seconds kLeaveTimeout{2};
constexpr std::string_view kPureNccl = "pure_nccl";
constexpr std::string_view kNonCudaAware = "non_cuda_aware";

constexpr std::array kAlgorithms = {ops::Algorithm::kNaive,        ops::Algorithm::kFlat,
                                    ops::Algorithm::kHierarchical, ops::Algorithm::kTwoDimensional,
                                    ops::Algorithm::kSingleNode,   ops::Algorithm::kAuto};

// An algorithm of ours; what torch's own backends do is theirs.
ops::Algorithm algorithm_of(std::string_view name) {
  if (internal::parse_torch_backend(name)) return ops::Algorithm::kFlat;
  std::string known;
  for (const ops::Algorithm algorithm : kAlgorithms) {
    if (name == ops::to_string(algorithm)) return algorithm;
    known += (known.empty() ? "" : ", ") + std::string(ops::to_string(algorithm));
  }
  if (name == kPureNccl || name == kNonCudaAware) {
    internal::require_cuda("communicator '" + std::string(name) + "'");
    return name == kNonCudaAware ? ops::Algorithm::kHierarchical : ops::Algorithm::kFlat;
  }
  throw InvalidArgument("unknown communicator '" + std::string(name) + "'; known are " + known +
                        "; for GPUs also pure_nccl, non_cuda_aware; and torch's own, to compare "
                        "with: gloo, nccl");
}

ops::WireFormat wire_of(const CommunicatorOptions& options) {
  if (!options.allreduce_grad_dtype) return ops::WireFormat::kNative;
  switch (*options.allreduce_grad_dtype) {  // NOLINT: the many other types are refused below
    case c10::kHalf:
      return ops::WireFormat::kFloat16;
    case c10::kBFloat16:
      return ops::WireFormat::kBFloat16;
    case c10::kFloat:
      return ops::WireFormat::kNative;
    default:
      throw InvalidArgument(std::string("allreduce_grad_dtype ") +
                            c10::toString(*options.allreduce_grad_dtype) +
                            " is not possible; use float16, bfloat16 or float32");
  }
}

ops::GroupOptions group_options_of(std::string_view name, const CommunicatorOptions& options) {
  ops::GroupOptions group_options;
  group_options.algorithm = algorithm_of(name);
  if (options.object_chunk_bytes == 0) {
    throw InvalidArgument("object_chunk_bytes must not be 0; use some MiB");
  }
  group_options.wire = wire_of(options);
  group_options.timeout = options.timeout;
  group_options.cross = ops::parse_cross_transport(options.cross);
  if (const auto torchs = internal::parse_torch_backend(name)) {
    internal::check_torch_group(*torchs, group_options);
  }
  return group_options;
}

}  // namespace

std::shared_ptr<ops::Group> Communicator::Impl::create_group(
    ops::GroupOptions group_options) const {
  const auto torchs = internal::parse_torch_backend(name);
  // Torch's NCCL only reduces on GPUs; everything else a communicator does is on the CPU.
  return torchs == internal::TorchBackend::kGloo
             ? world->create_torch_group(*torchs, world_ranks, std::move(group_options))
             : world->create_subgroup(world_ranks, std::move(group_options));
}

std::shared_ptr<ops::DeviceGroup> Communicator::Impl::create_device_group(c10::Device device,
                                                                          int number) const {
  if (!device.is_cuda()) {
    throw InvalidArgument("a tensor is on " + device.str() +
                          "; communicators take tensors on CPUs and CUDA devices");
  }
  internal::require_cuda("a tensor on " + device.str());
  if (internal::parse_torch_backend(name)) {
    return internal::make_torch_device_group(*group, device.index(), number);
  }
  ops::DeviceGroupOptions device_options;
  device_options.device = device.index();
  device_options.crosses_on_host = name == kNonCudaAware;
  device_options.global_ranks = world_ranks;
  const std::string prefix = "device/" + group->options().name + "/" + std::to_string(number);
  return ops::create_device_group(ops::open_device_library(), group,
                                  world->create_rendezvous(prefix), std::move(device_options));
}

std::shared_ptr<const internal::DeviceContext> Communicator::Impl::device_context(
    c10::Device device) const {
  if (device.is_cpu()) return nullptr;
  if (internal::parse_torch_backend(name) == internal::TorchBackend::kGloo) {
    throw InvalidArgument("communicator 'gloo' reduces CPU tensors, not those on " + device.str() +
                          "; use 'nccl' for GPUs");
  }
  return device_contexts->at(device);
}

std::shared_ptr<const internal::DeviceContext> Communicator::Impl::device_context_for_gradients(
    c10::Device device) const {
  const bool needs_gpu = name == kPureNccl || name == kNonCudaAware ||
                         internal::parse_torch_backend(name) == internal::TorchBackend::kNccl;
  if (device.is_cpu() && needs_gpu) {
    throw InvalidArgument("communicator '" + name +
                          "' is for gradients on GPUs; move the model there, or use 'gloo' or "
                          "'hierarchical' for one on the CPU");
  }
  return device_context(device);
}

namespace internal {

std::shared_ptr<Communicator> make_communicator(std::shared_ptr<World> world, std::string_view name,
                                                const CommunicatorOptions& options,
                                                const std::string& group_name) {
  ops::GroupOptions group_options = group_options_of(name, options);
  group_options.name = group_name;
  if (group_options.algorithm == ops::Algorithm::kSingleNode &&
      world->topology().node_count() > 1) {
    throw InvalidArgument("communicator 'single_node' cannot be used over " +
                          world->topology().describe() +
                          "; use 'hierarchical' or 'two_dimensional'");
  }
  auto impl = std::make_unique<Communicator::Impl>();
  impl->name = name;
  impl->options = options;
  impl->world = world;
  impl->world_ranks = ops::all_ranks(world->size());
  if (world->rank() == 0) {
    LogMessage(LogLevel::kInfo) << "communicator " << name << ": " << world->topology().describe()
                                << ", " << ops::to_string(group_options.wire)
                                << " between nodes, started by " << world->starter();
  }
  impl->group = impl->create_group(std::move(group_options));
  add_to_family(impl->world, impl->group);
  return std::make_shared<Communicator>(std::move(impl));
}

void enter_world(Communicator& communicator, std::shared_ptr<World> world) {
  Communicator::Impl& impl = communicator.impl();
  ops::GroupOptions group_options = group_options_of(impl.name, impl.options);
  group_options.name = "elastic";
  impl.graph_group.reset();
  impl.world = std::move(world);
  impl.world_ranks = ops::all_ranks(impl.world->size());
  impl.group = impl.create_group(std::move(group_options));
  add_to_family(impl.world, impl.group);
  impl.splits = 0;
  impl.failure = nullptr;
}

namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

// Some ranks of a part may wait in it for others that have left the world by its own group's error.
void end_parts(Communicator::Impl& of, bool is_broken, const std::exception_ptr& why) {
  for (const auto& one : std::exchange(of.parts, {})) {
    const std::shared_ptr<Communicator> part = one.lock();
    if (!part || part->impl().outlives_world) continue;
    Communicator::Impl& impl = part->impl();
    impl.failure = why;
    if (is_broken && !impl.group->error()) impl.group->abort(why);
    end_parts(impl, is_broken, why);
  }
}

}  // namespace

void leave_world(Communicator& communicator, const std::exception_ptr& why) {
  Communicator::Impl& impl = communicator.impl();
  // Nothing is in flight where all have reached a boundary; its destructor closes it.
  const bool is_broken = impl.group->error() != nullptr;
  if (!is_broken) impl.group->set_timeout(kLeaveTimeout);
  end_parts(
      impl, is_broken,
      std::make_exception_ptr(PeerError("this communicator was made by split() in another world: " +
                                        text_of(why) + ", where on_world() has to make it anew")));
  impl.failure = why;
}

}  // namespace internal

std::shared_ptr<Communicator> create_communicator(std::string_view name,
                                                  const CommunicatorOptions& options) {
  // Mistakes are reported before the job is joined.
  static_cast<void>(group_options_of(name, options));
  // Counts this process's calls: every rank creates its communicators in the same order.
  static std::atomic<int> created{0};
  return internal::make_communicator(job_world(), name, options,
                                     "communicator" + std::to_string(created++));
}

std::shared_ptr<Communicator> Communicator::split(int color, int key) {
  struct Wish {
    std::int32_t color;
    std::int32_t key;
  };
  const std::vector<Wish> wishes = allgather_obj(Wish{color, key});

  std::vector<int> members;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    if (wishes[r].color == color) members.push_back(static_cast<int>(r));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });

  auto impl = std::make_unique<Impl>();
  impl->name = impl_->name;
  impl->options = impl_->options;
  impl->world = impl_->world;
  for (const int member : members) {
    impl->world_ranks.push_back(impl_->world_ranks.at(static_cast<std::size_t>(member)));
  }
  ops::GroupOptions options = impl_->group->options();
  options.name += "/split" + std::to_string(impl_->splits++) + "." + std::to_string(color);
  impl->group = impl->create_group(std::move(options));
  internal::add_to_family(impl->world, impl->group);
  auto part = std::make_shared<Communicator>(std::move(impl));
  std::erase_if(impl_->parts, [](const auto& one) { return one.expired(); });
  impl_->parts.push_back(part);
  return part;
}

}  // namespace chainmail
