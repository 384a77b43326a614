// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/cpu_shares.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <memory>

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

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  // What the kernel's files say is enough; asking every processor by cpuid takes longer than all
  // the rest, most of all in a virtual machine.
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  return hwloc_topology_load(raw) == 0 ? std::move(topology) : nullptr;
}

// Without hwloc's help every logical processor counts as a core.
std::vector<std::vector<int>> cores_by_affinity() {
  std::vector<std::vector<int>> cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cores.push_back({static_cast<int>(cpu)});
  }
  return cores;
}

}  // namespace

std::vector<CpuShare> share_cores(const std::vector<std::vector<int>>& cores, int ranks) {
  const auto count = static_cast<std::size_t>(std::max(ranks, 0));
  std::vector<CpuShare> shares(count);
  if (count == 0 || cores.size() < count) return shares;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * cores.size() / count;
    const std::size_t end = (i + 1) * cores.size() / count;
    shares[i].cores = static_cast<int>(end - begin);
    for (std::size_t core = begin; core < end; ++core) {
      shares[i].cpus.insert(shares[i].cpus.end(), cores[core].begin(), cores[core].end());
    }
  }
  return shares;
}

std::vector<std::vector<int>> usable_cores() {
  const Topology topology = load_topology();
  const Bitmap allowed(hwloc_bitmap_alloc());
  // The allowed set of the topology knows about cgroups, not about taskset; the binding does.
  if (!topology || !allowed ||
      hwloc_get_cpubind(topology.get(), allowed.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return cores_by_affinity();
  }
  std::vector<std::vector<int>> cores;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) != nullptr) {
    std::vector<int> cpus;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (hwloc_bitmap_isset(allowed.get(), static_cast<unsigned>(cpu)) != 0) cpus.push_back(cpu);
    }
    if (!cpus.empty()) cores.push_back(std::move(cpus));
  }
  return cores.empty() ? cores_by_affinity() : cores;
}

}  // namespace chainmail::launch
