// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/placement/cpu_shares.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

namespace chainmail::launch {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology* topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

struct BitmapDeleter {
  void operator()(hwloc_bitmap_s* bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

using Cpus = std::vector<int>;

// While one of these lives, hwloc finds no plugins. Ours would be those of whatever hwloc is
// installed on the host, loaded into the copy that we carry: they bring XML, OpenCL and X11
// libraries along, which takes longer than all the rest, and tell nothing about processors.
class WithoutPlugins {
 public:
  WithoutPlugins() {
    if (const char* value = std::getenv(kPath)) before_ = value;
    setenv(kPath, "/dev/null", 1);  // hwloc takes what is not a folder for an empty one
  }
  ~WithoutPlugins() {
    if (before_) {
      setenv(kPath, before_->c_str(), 1);
    } else {
      unsetenv(kPath);
    }
  }
  WithoutPlugins(const WithoutPlugins&) = delete;
  WithoutPlugins& operator=(const WithoutPlugins&) = delete;

 private:
  static constexpr const char* kPath = "HWLOC_PLUGINS_PATH";
  std::optional<std::string> before_;
};

Topology load_topology() {
  const WithoutPlugins without_plugins;
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // What the kernel's files say is enough; asking every processor by cpuid takes longer than all
  // the rest, most of all in a virtual machine.
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  return hwloc_topology_load(raw) == 0 ? std::move(topology) : nullptr;
}

// Without hwloc's help every logical processor counts as a core.
std::vector<Core> cores_by_affinity() {
  std::vector<Core> cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cores.push_back({.cpus = {static_cast<int>(cpu)}});
  }
  return cores;
}

// The number of the part of this type that the core lies in; 0 where the machine shows none.
int part_of(hwloc_topology_t topology, hwloc_obj_t core, hwloc_obj_type_t type) {
  // NUMA nodes hang beside the tree of processors, so sets are compared instead of parents.
  hwloc_obj_t part = nullptr;
  while ((part = hwloc_get_next_obj_by_type(topology, type, part)) != nullptr) {
    if (part->cpuset != nullptr && hwloc_bitmap_isincluded(core->cpuset, part->cpuset) != 0) {
      return static_cast<int>(part->logical_index);
    }
  }
  return 0;
}

void add(CpuShare& share, const Core& core) {
  share.cpus.insert(share.cpus.end(), core.cpus.begin(), core.cpus.end());
}

// Cuts the list of cores into as many pieces of neighbours as there are ranks.
std::vector<CpuShare> even_shares(const std::vector<Core>& cores, std::size_t ranks) {
  std::vector<CpuShare> shares(ranks);
  if (cores.size() < ranks) return shares;
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t begin = i * cores.size() / ranks;
    const std::size_t end = (i + 1) * cores.size() / ranks;
    shares[i].cores = static_cast<int>(end - begin);
    for (std::size_t core = begin; core < end; ++core) add(shares[i], cores[core]);
  }
  return shares;
}

std::vector<CpuShare> unbound_shares(std::size_t cores, std::size_t ranks) {
  const std::size_t each = std::max<std::size_t>(1, cores / std::max<std::size_t>(1, ranks));
  return std::vector<CpuShare>(ranks, {{}, static_cast<int>(each)});
}

// `width` cores or hardware threads for each rank, one after the other.
std::vector<CpuShare> unit_shares(const std::vector<Cpus>& units, std::size_t ranks,
                                  const Binding& binding, const char* unit) {
  const std::size_t width = binding.width;
  if (units.size() < ranks * width && (!binding.overload || units.size() < width)) {
    throw UsageError(std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " with " +
                     std::to_string(width) + " " + unit + (width == 1 ? "" : "s") +
                     " each do not fit into the " + std::to_string(units.size()) +
                     " that may be used; say --bind-to none, or give each rank fewer");
  }
  std::vector<CpuShare> shares(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    shares[i].cores = static_cast<int>(width);
    for (std::size_t k = 0; k < width; ++k) {
      const Cpus& cpus = units[(i * width + k) % units.size()];
      shares[i].cpus.insert(shares[i].cpus.end(), cpus.begin(), cpus.end());
    }
  }
  return shares;
}

// Whole sockets, NUMA nodes or caches. Ranks fill one after the other, or take turns.
std::vector<CpuShare> part_shares(const std::vector<Core>& cores, std::size_t ranks,
                                  const Binding& binding) {
  std::map<int, std::vector<Core>> by_number;
  for (const Core& core : cores) {
    const int number = binding.to == BindTo::kL3     ? core.l3
                       : binding.to == BindTo::kNuma ? core.numa
                                                     : core.socket;
    by_number[number].push_back(core);
  }
  std::vector<std::vector<Core>> parts;
  for (auto& [number, members] : by_number) parts.push_back(std::move(members));
  std::vector<CpuShare> shares(ranks);
  if (parts.empty()) return shares;
  std::vector<std::size_t> part_of_rank(ranks);
  std::vector<std::size_t> ranks_of_part(parts.size(), 0);
  for (std::size_t i = 0; i < ranks; ++i) {
    part_of_rank[i] = binding.scatter ? i % parts.size() : i * parts.size() / ranks;
    ++ranks_of_part[part_of_rank[i]];
  }
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t part = part_of_rank[i];
    for (const Core& core : parts[part]) add(shares[i], core);
    shares[i].cores = std::max(1, static_cast<int>(parts[part].size() / ranks_of_part[part]));
  }
  return shares;
}

}  // namespace

std::vector<CpuShare> share_cores(const std::vector<Core>& cores, int ranks, const Binding& binding,
                                  int granted) {
  const auto count = static_cast<std::size_t>(std::max(ranks, 0));
  // Slots may be cores where processors are hardware threads: as many as there are cores is all.
  const bool is_part = granted > 0 && static_cast<std::size_t>(granted) < cores.size();
  const std::size_t usable = is_part ? static_cast<std::size_t>(granted) : cores.size();
  std::vector<Cpus> units;
  switch (binding.to) {
    case BindTo::kShare:
      return is_part ? unbound_shares(usable, count) : even_shares(cores, count);
    case BindTo::kNone:
      return unbound_shares(usable, count);
    case BindTo::kHwthread:
      for (const Core& core : cores) {
        for (const int cpu : core.cpus) units.push_back({cpu});
      }
      return unit_shares(units, count, binding, "hardware thread");
    case BindTo::kCore:
      for (const Core& core : cores) units.push_back(core.cpus);
      return unit_shares(units, count, binding, "core");
    case BindTo::kL3:
    case BindTo::kNuma:
    case BindTo::kSocket:
      return part_shares(cores, count, binding);
  }
  return unbound_shares(usable, count);
}

bool is_confined() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
         CPU_COUNT(&allowed) < sysconf(_SC_NPROCESSORS_ONLN);
}

std::vector<Core> usable_cores() {
  const Topology topology = load_topology();
  const Bitmap allowed(hwloc_bitmap_alloc());
  // The allowed set of the topology knows about cgroups, not about taskset; the binding does.
  if (!topology || !allowed ||
      hwloc_get_cpubind(topology.get(), allowed.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return cores_by_affinity();
  }
  std::vector<Core> cores;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, object)) != nullptr) {
    Core core;
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
      if (hwloc_bitmap_isset(allowed.get(), static_cast<unsigned>(cpu)) != 0) {
        core.cpus.push_back(cpu);
      }
    }
    if (core.cpus.empty()) continue;
    core.l3 = part_of(topology.get(), object, HWLOC_OBJ_L3CACHE);
    core.numa = part_of(topology.get(), object, HWLOC_OBJ_NUMANODE);
    core.socket = part_of(topology.get(), object, HWLOC_OBJ_PACKAGE);
    cores.push_back(std::move(core));
  }
  return cores.empty() ? cores_by_affinity() : cores;
}

std::string cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += (last > i + 1 ? "-" : ",") + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace chainmail::launch
