// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/contestants/roster.h"

#include <chainmail/backend.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "tools/bench/contestants/groups.h"
#include "tools/bench/contestants/in_process.h"
#include "tools/bench/contestants/mpi.h"

namespace chainmail::bench {
namespace {

constexpr char kTorch[] = "torch " TORCH_VERSION;

class ContestantMaker {
 public:
  ContestantMaker(const RosterOptions& options, World& world, Control& control)
      : options_(options), world_(world), control_(control), store_(make_job_store()) {}

  struct Own {
    std::string name;
    std::string wire;
    std::vector<int> order;
    bool uses_group_memory = false;
    bool use_checksum = true;
    ops::Encryption encryption = ops::Encryption::kOff;
    std::uint32_t shards = 0;
  };

  std::unique_ptr<Contestant> ours(const Own& own) const {
    if (!options_.is_engine) {
      const Ranks ranks = place_in(own.order);
      return make_c10d_contestant(make_ours(store_, ranks, options_.algorithm, own.wire, own.name),
                                  ranks, "through c10d of " + std::string(kTorch), options_.device);
    }
    ops::GroupOptions options;
    options.name = "bench/" + own.name;
    options.algorithm = ops::parse_algorithm(options_.algorithm);
    options.wire = ops::parse_wire_format(own.wire);
    options.timeout = std::chrono::minutes{2};
    options.use_checksum = own.use_checksum;
    options.encryption = own.encryption;
    return make_engine_contestant(own.name, world_.create_subgroup(own.order, options),
                                  {own.uses_group_memory, own.shards});
  }
  std::unique_ptr<Contestant> ours() const {
    return ours({"chainmail", options_.wire, by_slot_order(), options_.uses_group_memory});
  }
  std::unique_ptr<Contestant> gloo_by_slot() const { return gloo("gloo", by_slot_order()); }
  std::unique_ptr<Contestant> gloo_by_node() const {
    return gloo("gloo-by-node", by_node_order(control_.topology()));
  }
  std::unique_ptr<Contestant> gloo_one_per_node() const {
    std::vector<int> leaders;
    for (int node = 0; node < control_.topology().node_count(); ++node) {
      leaders.push_back(control_.topology().ranks_of_node(node).front());
    }
    return gloo("gloo-one-per-node", leaders);
  }
  std::unique_ptr<Contestant> by_node() const {
    return ours(
        {"by-node", options_.wire, by_node_order(control_.topology()), options_.uses_group_memory});
  }
  std::unique_ptr<Contestant> of_wire(const std::string& wire) const {
    return ours({wire, wire, by_slot_order(), options_.uses_group_memory});
  }
  std::unique_ptr<Contestant> private_memory() const {
    return ours({"private", options_.wire, by_slot_order()});
  }
  std::unique_ptr<Contestant> unchecked() const {
    if (!options_.is_engine) throw InvalidArgument("unchecked is measured with --engine only");
    return ours({"unchecked", options_.wire, by_slot_order(), options_.uses_group_memory, false});
  }
  std::unique_ptr<Contestant> sealed(ops::Encryption encryption) const {
    if (!options_.is_engine) {
      throw InvalidArgument(std::string(ops::to_string(encryption)) +
                            " is measured with --engine only");
    }
    return ours({ops::to_string(encryption), options_.wire, by_slot_order(),
                 options_.uses_group_memory, true, encryption});
  }
  /// `is_uneven`: a shard more than there are ranks, so that some bring two pieces.
  std::unique_ptr<Contestant> shards(const std::string& name, bool is_uneven) const {
    if (!options_.is_engine) throw InvalidArgument(name + " is measured with --engine only");
    Own own{name, options_.wire, by_slot_order(), options_.uses_group_memory};
    own.shards = static_cast<std::uint32_t>(control_.ranks().size) + (is_uneven ? 1U : 0U);
    return ours(own);
  }
  std::unique_ptr<Contestant> nccl() const {
    return make_c10d_contestant(make_nccl(store_, control_.ranks()), control_.ranks(), kTorch,
                                options_.device);
  }
  std::unique_ptr<Contestant> memory() const { return make_memory_contestant(control_); }
  std::unique_ptr<Contestant> mpi(const std::string& name) const {
    return make_mpi_contestant(control_, name, options_.remote_shell);
  }

 private:
  std::vector<int> by_slot_order() const {
    std::vector<int> order(static_cast<std::size_t>(control_.ranks().size));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  // Size 0 for a rank that is not in it.
  Ranks place_in(const std::vector<int>& order) const {
    Ranks ranks = control_.ranks();
    const auto found = std::find(order.begin(), order.end(), ranks.rank);
    if (found == order.end()) return {0, 0, ranks.nodes};
    return {static_cast<int>(found - order.begin()), static_cast<int>(order.size()), ranks.nodes};
  }
  std::unique_ptr<Contestant> gloo(const std::string& name, const std::vector<int>& order) const {
    const Ranks ranks = place_in(order);
    if (ranks.size == 0) return make_c10d_contestant({name, nullptr}, ranks, kTorch);
    return make_c10d_contestant(make_gloo(store_, ranks, name), ranks, kTorch);
  }

  const RosterOptions& options_;
  World& world_;
  Control& control_;
  const c10::intrusive_ptr<c10d::Store> store_;
};

using Make = std::function<std::unique_ptr<Contestant>(const ContestantMaker&)>;

const std::map<std::string, Make>& makes() {
  const auto mpi = [](const char* name) {
    return [name](const ContestantMaker& maker) { return maker.mpi(name); };
  };
  const auto of_wire = [](const char* name) {
    return [name](const ContestantMaker& maker) { return maker.of_wire(name); };
  };
  static const std::map<std::string, Make> kMakes = {
      {"gloo", &ContestantMaker::gloo_by_slot},
      {"gloo-by-node", &ContestantMaker::gloo_by_node},
      {"gloo-one-per-node", &ContestantMaker::gloo_one_per_node},
      {"by-node", &ContestantMaker::by_node},
      {"native", of_wire("native")},
      {"float16", of_wire("float16")},
      {"int8", of_wire("int8")},
      {"int4", of_wire("int4")},
      {"private", &ContestantMaker::private_memory},
      {"unchecked", &ContestantMaker::unchecked},
      {"authenticate",
       [](const ContestantMaker& maker) { return maker.sealed(ops::Encryption::kAuthenticate); }},
      {"encrypt",
       [](const ContestantMaker& maker) { return maker.sealed(ops::Encryption::kEncrypt); }},
      {"shards", [](const ContestantMaker& maker) { return maker.shards("shards", false); }},
      {"shards-uneven",
       [](const ContestantMaker& maker) { return maker.shards("shards-uneven", true); }},
      {"memory", &ContestantMaker::memory},
      {"nccl", &ContestantMaker::nccl},
      {"mpi", mpi("mpi")},
      {"mpi-inplace", mpi("mpi-inplace")},
      {"mpi-sm", mpi("mpi-sm")},
      {"mpich", mpi("mpich")}};
  return kMakes;
}

}  // namespace

std::vector<std::string> parse_contestants(const std::string& list) {
  std::vector<std::string> names;
  if (list.empty() || list == "none") return names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');) {
    if (!makes().contains(name)) {
      std::string valid = "none";
      for (const auto& [known, make] : makes()) valid += ", " + known;
      throw InvalidArgument("cannot compare with \"" + name + "\"; valid are: " + valid);
    }
    names.push_back(name);
  }
  return names;
}

bool is_rounding_wire(const std::string& name) {
  return name == "float16" || name == "int8" || name == "int4";
}

void check_contestants(const RosterOptions& options, bool is_on_gpu) {
  const std::vector<std::string> on_gpus = {"by-node", "native", "float16", "nccl"};
  if (is_on_gpu && options.is_engine) {
    throw InvalidArgument("--engine times calls on host memory; leave it out with --device cuda");
  }
  for (const std::string& name : options.against) {
    const bool is_for_gpus = std::find(on_gpus.begin(), on_gpus.end(), name) != on_gpus.end();
    if (is_on_gpu && !is_for_gpus) {
      throw InvalidArgument(
          name + " does not take tensors on GPUs; compare with nccl, native, float16 or by-node");
    }
    if (!is_on_gpu && name == "nccl") {
      throw InvalidArgument("nccl takes tensors on GPUs only; add --device cuda");
    }
  }
}

std::vector<std::unique_ptr<Contestant>> make_contestants(const RosterOptions& options,
                                                          World& world, Control& control) {
  const ContestantMaker maker(options, world, control);
  std::vector<std::unique_ptr<Contestant>> contestants;
  contestants.push_back(maker.ours());
  for (const std::string& name : options.against) contestants.push_back(makes().at(name)(maker));
  return contestants;
}

}  // namespace chainmail::bench
