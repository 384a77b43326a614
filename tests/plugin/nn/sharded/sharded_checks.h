// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sharded modules beside whole ones, whose gradients are averaged one by one.

#pragma once

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/communicator.h>
#include <chainmail/nn/sharded.h>

#include "plugin/nn/sharded/flat_layout.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/support/thread_world.h"

namespace chainmail::testing {

using CommPtr = std::shared_ptr<Communicator>;

/// Runs `body` as every rank of a job with nodes of the given sizes.
inline void on_nodes_of(const std::vector<int>& sizes,
                        const std::function<void(const CommPtr&)>& body,
                        const std::string& communicator = "hierarchical") {
  at::set_num_threads(1);
  with_communicator(sizes, communicator, {}, body);
}

/// x + out(tanh(in(x))).
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width, std::int64_t inside = 33)
      : in(register_module("in", torch::nn::Linear(width, inside))),
        out(register_module("out", torch::nn::Linear(inside, width))) {}
  torch::Tensor forward(torch::Tensor x) { return x + out(torch::tanh(in(x))); }
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

/// Some waves, others for another seed: threads share torch's generator.
inline torch::Tensor some_waves(at::IntArrayRef sizes, double seed) {
  const std::int64_t count = c10::multiply_integers(sizes);
  const torch::Tensor x = torch::arange(count, torch::kDouble);
  return ((x * 0.7123 + seed).sin() + (x * 0.0317 * (seed + 1)).cos())
      .to(torch::kFloat)
      .view(sizes);
}

/// Sets all parameters, each to other values.
template <typename Holder>
Holder filled(Holder module, double seed = 0) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module->parameters()) {
    parameter.copy_(some_waves(parameter.sizes(), seed += 1.5) * 0.2);
  }
  return module;
}

/// The parts of whole tensors that this rank has when they are one unit.
inline std::vector<torch::Tensor> own_parts(const std::vector<torch::Tensor>& whole,
                                            Communicator& comm) {
  std::vector<std::size_t> counts;
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : whole) {
    counts.push_back(static_cast<std::size_t>(tensor.numel()));
    parts.push_back(tensor.detach().flatten().narrow(0, 0, 0));
  }
  const internal::FlatLayout layout = internal::lay_out(counts, comm.impl().group->topology());
  for (const internal::SlicePart& part : layout.parts_of(comm.rank())) {
    parts[part.parameter] = whole[part.parameter].detach().flatten().slice(
        0, static_cast<std::int64_t>(part.begin), static_cast<std::int64_t>(part.end));
  }
  return parts;
}

inline bool has_same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && torch::equal(a.view(torch::kInt), b.view(torch::kInt));
}

/// That the gradients of a unit's slices are those of `whole`, bit for bit, or as undefined.
inline void expect_gradients(const ShardedModule& unit, const torch::nn::Module& whole,
                             Communicator& comm) {
  std::vector<torch::Tensor> gradients;
  const auto parameters = whole.named_parameters();
  for (const auto& item : parameters) {
    const torch::Tensor& gradient = item.value().grad();
    gradients.push_back(gradient.defined() ? gradient : torch::zeros_like(item.value()));
  }
  const std::vector<torch::Tensor> expected = own_parts(gradients, comm);
  const auto slices = unit.named_parameters();
  ASSERT_EQ(slices.size(), parameters.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    ASSERT_EQ(slices[i].key(), parameters[i].key());
    const torch::Tensor& got = slices[i].value().grad();
    ASSERT_EQ(got.defined(), parameters[i].value().grad().defined()) << slices[i].key();
    if (got.defined()) {
      EXPECT_TRUE(has_same_bits(got, expected[i])) << slices[i].key();
    }
  }
}

/// Means over the ranks, of those that are there.
inline void average_gradients(const std::vector<torch::Tensor>& parameters, Communicator& comm) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  comm.allreduce_mean(gradients);
}

/// That no parameter of `module` has memory.
inline void expect_empty(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    EXPECT_EQ(item.value().storage().nbytes(), 0U) << item.key();
  }
}

/// Two units beside the same modules whole.
struct Pair {
  static constexpr std::int64_t kWidth = 12;

  explicit Pair(const CommPtr& communicator)
      : comm(communicator),
        whole_a(filled(Block(kWidth))),
        whole_b(filled(Block(kWidth), 20)),
        a(filled(Block(kWidth)), comm, {.name = "a"}),
        b(filled(Block(kWidth), 20), comm, {.name = "b"}) {}

  torch::Tensor input(int seed = 0) const {
    return some_waves({4, kWidth}, seed * 10 + comm->rank());
  }
  void zero_grad() {
    for (torch::nn::Module* const module :
         std::vector<torch::nn::Module*>{a.get(), b.get(), whole_a.get(), whole_b.get()}) {
      module->zero_grad();
    }
  }
  void expect_same_gradients() {
    std::vector<torch::Tensor> all = whole_a->parameters();
    for (const torch::Tensor& one : whole_b->parameters()) all.push_back(one);
    average_gradients(all, *comm);
    expect_gradients(*a, *whole_a, *comm);
    expect_gradients(*b, *whole_b, *comm);
  }
  void expect_nothing_whole() const {
    EXPECT_EQ(a->counts().whole_bytes, 0U);
    expect_empty(*a->module());
    expect_empty(*b->module());
  }

  CommPtr comm;
  Block whole_a, whole_b;
  Sharded<Block> a, b;
};

}  // namespace chainmail::testing
