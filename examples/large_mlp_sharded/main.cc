// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The memory that ranks of a node save when they share an optimizer: trains a multi-layer
// perceptron on made-up data, first without and then with chainmail::Sharding::kNode, and prints
// what each rank and each node takes for it. The parameters end with the same bits.
//
//   launcher -H localhost:2 -n 2 large_mlp_sharded

#include <gflags/gflags.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../common/job.h"

DEFINE_string(communicator, "hierarchical", "as for train_mnist, but naive");
DEFINE_int64(unit, 2048, "units of each layer");
DEFINE_int64(layers, 6, "of the model");
DEFINE_int64(batchsize, 8, "samples per rank and step");
DEFINE_int64(steps, 3, "of training, in each way");
DEFINE_uint64(seed, 0, "of weights and samples");

namespace {

constexpr double kMiB = 1 << 20;

// Bytes of this process. What several map counts in equal parts, so that a node's ranks add up; but
// not files, such as libraries, which any other program may map.
double memory() {
  malloc_trim(0);  // what has been freed is not taken
  std::ifstream file("/proc/self/smaps_rollup");
  double sum = 0;
  for (std::string word; file >> word;) {
    double kib = 0;
    if ((word == "Pss_Anon:" || word == "Pss_Shmem:") && file >> kib) sum += kib * 1024;
  }
  if (sum == 0) {
    throw std::runtime_error("/proc/self/smaps_rollup has no Pss_Anon: use Linux 5.4 or newer");
  }
  return sum;
}

torch::nn::Sequential make_model(std::int64_t units) {
  torch::manual_seed(FLAGS_seed);
  torch::nn::Sequential model;
  for (std::int64_t layer = 0; layer < FLAGS_layers; ++layer) {
    model->push_back(torch::nn::Linear(units, units));
    model->push_back(torch::nn::ReLU());
  }
  return model;
}

void print(chainmail::Communicator& comm, const char* way, double bytes, std::int64_t parameters) {
  const std::vector<double> of_ranks = comm.gather_obj(bytes);
  const std::vector<int> nodes = comm.gather_obj(comm.inter_rank());
  if (comm.rank() != 0) return;
  std::map<int, double> of_nodes;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    of_nodes[nodes[rank]] += of_ranks[rank];
    std::printf("%s: rank %zu takes %.0f MiB\n", way, rank, of_ranks[rank] / kMiB);
  }
  for (const auto& [node, sum] : of_nodes) {
    std::printf("%s: node %d takes %.0f MiB, %.1f bytes per parameter\n", way, node, sum / kMiB,
                sum / static_cast<double>(parameters));
  }
}

// On a communicator of its own, whose memory ends with it. Prints unless `way` is null.
void train(const char* way, std::int64_t units, chainmail::Sharding sharding) {
  const auto comm = join(FLAGS_communicator);
  comm->barrier();
  const double before = memory();
  auto model = make_model(units);
  auto optimizer = chainmail::create_multi_node_optimizer(
      std::make_unique<torch::optim::Adam>(model->parameters(), 1e-4), comm,
      {.model = &model, .shard = sharding});
  torch::manual_seed(FLAGS_seed + 1 + static_cast<std::uint64_t>(comm->rank()));
  for (std::int64_t step = 0; step < FLAGS_steps; ++step) {
    optimizer->zero_grad();
    model->forward(torch::rand({FLAGS_batchsize, units})).pow(2).mean().backward();
    optimizer->step();
  }
  comm->barrier();  // all have taken what they need
  const double taken = memory() - before;
  if (way != nullptr) {
    std::int64_t parameters = 0;
    for (const torch::Tensor& parameter : model->parameters()) parameters += parameter.numel();
    print(*comm, way, taken, parameters);
    print_digest(*comm, model->parameters());
  }
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{.name = "large_mlp_sharded",
                               .what =
                                   "Shows what memory the ranks of a node "
                                   "save when they share an optimizer."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (std::min({FLAGS_unit, FLAGS_layers, FLAGS_batchsize, FLAGS_steps}) < 1) {
      throw flags::UsageError("--unit, --layers, --batchsize and --steps must be at least 1");
    }
    train(nullptr, 8, chainmail::Sharding::kNode);  // code takes memory when it is first used
    train("each its own", FLAGS_unit, chainmail::Sharding::kNone);
    train("shared", FLAGS_unit, chainmail::Sharding::kNode);
    return 0;
  });
}
