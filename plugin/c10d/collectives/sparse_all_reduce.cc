// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// All-reduce of sparse tensors: every rank gathers the others' indices and values and adds them up
// in rank order. Three operations, since the first one exchanges the lengths of the others.

#include <ATen/ATen.h>

#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/collectives/buffers.h"
#include "plugin/c10d/collectives/checks.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

void check_sparse(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op,
                  const char* what) {
  TORCH_CHECK(!tensors.empty(), "chainmail: ", what, " needs at least one tensor");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.defined() && tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                "chainmail: ", what, " needs sparse (COO) CPU tensors");
  }
  check_like(tensors, tensors[0], what);
  TORCH_CHECK(op == c10d::ReduceOp::SUM, "chainmail: ", what,
              ": unsupported reduction operation (allreduce of sparse tensors only works with "
              "ReduceOp.SUM)");
}

// One gather of parts whose lengths the other ranks tell first.
struct GatheredParts {
  at::Tensor mine;
  at::Tensor all;
  std::int64_t row = 1;  ///< elements per index
};

/// What the three operations share; the first writes `counts`, which the others read.
struct SparseSum {
  at::Tensor count;   ///< how many indices this rank has
  at::Tensor counts;  ///< and every rank
  GatheredParts indices;
  GatheredParts values;

  explicit SparseSum(const at::Tensor& sparse, int size)
      : count(at::full({1}, sparse._nnz(), at::kLong)), counts(at::zeros({size}, at::kLong)) {
    indices = {sparse._indices().contiguous(), {}, sparse.sparse_dim()};
    values = {resolved(sparse._values().contiguous()), {}, 1};
    const at::IntArrayRef shape = values.mine.sizes();
    for (std::size_t i = 1; i < shape.size(); ++i) values.row *= shape[i];
  }

  at::Tensor result(const at::Tensor& like) const {
    std::vector<at::Tensor> all_indices;
    std::vector<std::int64_t> value_shape = values.mine.sizes().vec();
    std::int64_t start = 0;
    const std::int64_t* ends = counts.const_data_ptr<std::int64_t>();
    for (std::int64_t rank = 0; rank < counts.numel(); ++rank) {
      const std::int64_t length = ends[rank] * indices.row;
      all_indices.push_back(indices.all.narrow(0, start, length).view({indices.row, ends[rank]}));
      start += length;
    }
    value_shape[0] = counts.sum().item<std::int64_t>();
    return at::sparse_coo_tensor(at::cat(all_indices, 1), values.all.view(value_shape),
                                 like.sizes(), like.options().requires_grad(false))
        .coalesce();
  }
};

// An all_gather of `parts`, as many rows of each rank as state.counts says by then. `payload` keeps
// `state` and lives as long as the operation.
ops::Collective gather_rows(const SparseSum& state, GatheredParts& parts, Payload& payload) {
  const c10::ScalarType type = parts.mine.scalar_type();
  ops::Collective collective = data_collective(ops::OpKind::kAllGather, type, 0);
  collective.prepare = [&state, &parts, &payload,
                        factor = elements_to_move(type).factor](ops::Collective& prepared) {
    const std::int64_t* rows = state.counts.const_data_ptr<std::int64_t>();
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < state.counts.numel(); ++rank) {
      const std::int64_t elements_of_rank = rows[rank] * parts.row;
      prepared.receive_counts.push_back(static_cast<std::size_t>(elements_of_rank) * factor);
      total += elements_of_rank;
    }
    parts.all = at::empty({total}, parts.mine.options());
    set_input(parts.mine, prepared, payload);
    set_output(parts.all, prepared, payload);
  };
  return collective;
}

}  // namespace

WorkPtr ChainmailBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const Api& api = api::kAllReduceSparse;
  check_sparse(tensors, opts.reduceOp, api.name);
  const c10::AutoGradMode no_gradients(false);
  at::Tensor mine = tensors[0];
  for (std::size_t i = 1; i < tensors.size(); ++i) mine = mine + tensors[i];
  mine = mine.coalesce();

  const auto state = std::make_shared<SparseSum>(mine, size_);
  const PayloadPtr payload = group_.make_payload(tensors);
  ops::Collective lengths = data_collective(ops::OpKind::kAllGather, at::kLong, 1);
  set_input(state->count, lengths, *payload);
  set_output(state->counts, lengths, *payload);
  // Values of other shape or type would not fit together; neither would another number of indices.
  lengths.shape_hash =
      hash_shapes({mine, at::empty({mine.sparse_dim(), mine.dense_dim()}, at::kByte)});

  payload->copy_out = [state, tensors] {
    const c10::AutoGradMode no_gradients_here(false);
    const at::Tensor sum = state->result(tensors[0]);
    for (const at::Tensor& tensor : tensors) tensor.copy_(sum);
  };
  std::vector<ops::Collective> steps;
  steps.push_back(std::move(lengths));
  steps.push_back(gather_rows(*state, state->indices, *payload));
  steps.push_back(gather_rows(*state, state->values, *payload));
  return issuer_.issue_all({api, opts.timeout, opts.asyncOp}, {}, std::move(steps), payload);
}

}  // namespace chainmail::internal
