// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/side_by_side/collectives.h"

#include <algorithm>

namespace chainmail::side_by_side {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

void wait(const WorkPtr& work) {
  if (work) work->wait();
}

template <typename Options>
Options options_of(const Case& what) {
  Options options;
  options.asyncOp = what.is_async;
  return options;
}

template <typename Options>
Options reducing(const Case& what) {
  auto options = options_of<Options>(what);
  options.reduceOp = what.reduction.op();
  return options;
}

// One contribution of every rank.
Tensors of_all(const Case& what, int part = 0) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) {
    all.push_back(values(what, what.shape.sizes, rank, part));
  }
  return all;
}

Tensors blanks(const Case& what, int count) {
  Tensors all;
  for (int i = 0; i < count; ++i) all.push_back(blank(what, what.shape.sizes));
  return all;
}

// For every rank one tensor of mine, in the case's shape.
Tensors parts_of(const Case& what, int rank) {
  Tensors all;
  for (int part = 0; part < what.size; ++part) all.push_back(input(what, rank, part));
  return all;
}

Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

int last(const Case& what) { return what.size - 1; }

// Reductions.

Tensors all_reduce(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank)};
  wait(group.allreduce(tensors, reducing<c10d::AllreduceOptions>(what)));
  return tensors;
}

Tensors expect_all_reduce(const Case& what) { return {reduced(what, of_all(what))}; }

Tensors all_reduce_list(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank, 0), input(what, what.rank, 1)};
  wait(group.allreduce(tensors, reducing<c10d::AllreduceOptions>(what)));
  return tensors;
}

Tensors expect_all_reduce_list(const Case& what) {
  const at::Tensor sum = reduced(what, flattened({of_all(what, 0), of_all(what, 1)}));
  return {sum, sum};
}

Tensors all_reduce_coalesced(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank, 0), laid_out(values(what, {2}, what.rank), Layout::kPlain),
                  input(what, what.rank, 1)};
  wait(group.allreduce_coalesced(tensors, reducing<c10d::AllreduceCoalescedOptions>(what)));
  return tensors;
}

Tensors expect_all_reduce_coalesced(const Case& what) {
  Tensors small;
  for (int rank = 0; rank < what.size; ++rank) small.push_back(values(what, {2}, rank));
  return {reduced(what, of_all(what, 0)), reduced(what, small), reduced(what, of_all(what, 1))};
}

Tensors reduce(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank)};
  auto options = reducing<c10d::ReduceOptions>(what);
  options.rootRank = last(what);
  wait(group.reduce(tensors, options));
  // What the others hold afterwards is nobody's business.
  return what.rank == last(what) ? tensors : Tensors{};
}

Tensors expect_reduce(const Case& what) {
  return what.rank == last(what) ? expect_all_reduce(what) : Tensors{};
}

Tensors reduce_scatter(c10d::Backend& group, const Case& what) {
  Tensors outputs = blanks(what, 1);
  std::vector<Tensors> inputs{parts_of(what, what.rank)};
  wait(group.reduce_scatter(outputs, inputs, reducing<c10d::ReduceScatterOptions>(what)));
  return outputs;
}

Tensors expect_reduce_scatter(const Case& what) { return {reduced(what, of_all(what, what.rank))}; }

at::Tensor stacked_parts(const Case& what, int rank) {
  return laid_out(values(what, stacked(what, what.size), rank), what.shape.layout);
}

Tensors reduce_scatter_base(c10d::Backend& group, const Case& what) {
  at::Tensor output = blank(what, stacked(what, 1));
  at::Tensor from = stacked_parts(what, what.rank);
  wait(group._reduce_scatter_base(output, from, reducing<c10d::ReduceScatterOptions>(what)));
  return {output};
}

Tensors reduce_scatter_coalesced(c10d::Backend& group, const Case& what) {
  Tensors outputs{blank(what, stacked(what, 1)), blank(what, stacked(what, 2))};
  Tensors inputs{
      stacked_parts(what, what.rank),
      laid_out(values(what, stacked(what, 2 * what.size), what.rank, 1), what.shape.layout)};
  wait(group.reduce_scatter_tensor_coalesced(outputs, inputs,
                                             reducing<c10d::ReduceScatterOptions>(what)));
  return outputs;
}

at::Tensor my_share(const Case& what, std::int64_t rows_of_case, int part) {
  Tensors all;
  const auto sizes = stacked(what, rows_of_case * what.size);
  for (int rank = 0; rank < what.size; ++rank) all.push_back(values(what, sizes, rank, part));
  const std::int64_t rows = sizes[0] / what.size;
  return reduced(what, all).narrow(0, what.rank * rows, rows);
}

// Movements.

Tensors broadcast(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank)};
  auto options = options_of<c10d::BroadcastOptions>(what);
  options.rootRank = last(what);
  wait(group.broadcast(tensors, options));
  return tensors;
}

Tensors broadcast_list(c10d::Backend& group, const Case& what) {
  Tensors tensors{input(what, what.rank, 0), input(what, what.rank, 1)};
  auto options = options_of<c10d::BroadcastOptions>(what);
  options.rootTensor = 1;
  wait(group.broadcast(tensors, options));
  return tensors;
}

Tensors all_gather(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> outputs{blanks(what, what.size)};
  Tensors inputs{input(what, what.rank)};
  wait(group.allgather(outputs, inputs, options_of<c10d::AllgatherOptions>(what)));
  return outputs[0];
}

std::vector<std::int64_t> uneven_sizes(const Case& what, int rank) {
  return stacked(what, rank + 1);
}

Tensors all_gather_uneven(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> outputs(1);
  for (int rank = 0; rank < what.size; ++rank) {
    outputs[0].push_back(blank(what, uneven_sizes(what, rank)));
  }
  Tensors inputs{
      laid_out(values(what, uneven_sizes(what, what.rank), what.rank), what.shape.layout)};
  wait(group.allgather(outputs, inputs, options_of<c10d::AllgatherOptions>(what)));
  return outputs[0];
}

Tensors expect_all_gather_uneven(const Case& what) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) {
    all.push_back(values(what, uneven_sizes(what, rank), rank));
  }
  return all;
}

Tensors all_gather_lists(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> outputs{blanks(what, 2 * what.size), blanks(what, 2 * what.size)};
  Tensors inputs{input(what, what.rank, 0), input(what, what.rank, 1)};
  wait(group.allgather(outputs, inputs, options_of<c10d::AllgatherOptions>(what)));
  return flattened(outputs);
}

Tensors expect_all_gather_lists(const Case& what) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) {
    for (int part = 0; part < 2; ++part) all.push_back(values(what, what.shape.sizes, rank, part));
  }
  return flattened({all, all});
}

Tensors all_gather_base(c10d::Backend& group, const Case& what) {
  at::Tensor output = blank(what, stacked(what, what.size));
  at::Tensor from = input(what, what.rank);
  wait(group._allgather_base(output, from, options_of<c10d::AllgatherOptions>(what)));
  return {output};
}

at::Tensor end_to_end(const Case& what, int part = 0) {
  Tensors rows;
  for (const at::Tensor& tensor : of_all(what, part)) {
    rows.push_back(tensor.dim() == 0 ? tensor.view({1}) : tensor);
  }
  return at::cat(rows);
}

Tensors all_gather_coalesced(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> outputs;
  for (int rank = 0; rank < what.size; ++rank) outputs.push_back(blanks(what, 2));
  Tensors inputs{input(what, what.rank, 0), input(what, what.rank, 1)};
  wait(group.allgather_coalesced(outputs, inputs, options_of<c10d::AllgatherOptions>(what)));
  return flattened(outputs);
}

Tensors expect_all_gather_coalesced(const Case& what) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) {
    for (int part = 0; part < 2; ++part) all.push_back(values(what, what.shape.sizes, rank, part));
  }
  return all;
}

Tensors all_gather_into_coalesced(c10d::Backend& group, const Case& what) {
  Tensors outputs{blank(what, stacked(what, what.size)), blank(what, stacked(what, what.size))};
  Tensors inputs{input(what, what.rank, 0), input(what, what.rank, 1)};
  wait(group.allgather_into_tensor_coalesced(outputs, inputs,
                                             options_of<c10d::AllgatherOptions>(what)));
  return outputs;
}

Tensors gather(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> outputs;
  if (what.rank == last(what)) outputs = {blanks(what, what.size)};
  Tensors inputs{input(what, what.rank)};
  auto options = options_of<c10d::GatherOptions>(what);
  options.rootRank = last(what);
  wait(group.gather(outputs, inputs, options));
  return flattened(outputs);
}

Tensors scatter(c10d::Backend& group, const Case& what) {
  std::vector<Tensors> inputs;
  if (what.rank == last(what)) inputs = {parts_of(what, what.rank)};
  Tensors outputs = blanks(what, 1);
  auto options = options_of<c10d::ScatterOptions>(what);
  options.rootRank = last(what);
  wait(group.scatter(outputs, inputs, options));
  return outputs;
}

Tensors all_to_all(c10d::Backend& group, const Case& what) {
  Tensors outputs = blanks(what, what.size);
  Tensors inputs = parts_of(what, what.rank);
  wait(group.alltoall(outputs, inputs, options_of<c10d::AllToAllOptions>(what)));
  return outputs;
}

Tensors expect_all_to_all(const Case& what) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) {
    all.push_back(values(what, what.shape.sizes, rank, what.rank));
  }
  return all;
}

Tensors all_to_all_base(c10d::Backend& group, const Case& what) {
  at::Tensor output = blank(what, stacked(what, what.size));
  at::Tensor from = stacked_parts(what, what.rank);
  std::vector<std::int64_t> equal;
  wait(group.alltoall_base(output, from, equal, equal, options_of<c10d::AllToAllOptions>(what)));
  return {output};
}

Tensors expect_all_to_all_base(const Case& what) {
  Tensors parts;
  const std::int64_t rows = stacked(what, 1)[0];
  for (int rank = 0; rank < what.size; ++rank) {
    parts.push_back(values(what, stacked(what, what.size), rank).narrow(0, what.rank * rows, rows));
  }
  return {at::cat(parts)};
}

// Rank a has a + b + 1 times the case for rank b.
std::vector<std::int64_t> uneven_splits(const Case& what, int rank) {
  std::vector<std::int64_t> splits;
  for (int peer = 0; peer < what.size; ++peer) {
    splits.push_back((rank + peer + 1) * stacked(what, 1)[0]);
  }
  return splits;
}

at::Tensor uneven_rows(const Case& what, int rank) {
  int count = 0;
  for (int peer = 0; peer < what.size; ++peer) count += rank + peer + 1;
  return values(what, stacked(what, count), rank);
}

Tensors all_to_all_uneven(c10d::Backend& group, const Case& what) {
  at::Tensor from = laid_out(uneven_rows(what, what.rank), what.shape.layout);
  at::Tensor output = blank(what, from.sizes().vec());
  // Two vectors, since Gloo moves what it is given out of its place.
  auto output_splits = uneven_splits(what, what.rank);
  auto input_splits = output_splits;
  wait(group.alltoall_base(output, from, output_splits, input_splits,
                           options_of<c10d::AllToAllOptions>(what)));
  return {output};
}

Tensors expect_all_to_all_uneven(const Case& what) {
  Tensors parts;
  for (int rank = 0; rank < what.size; ++rank) {
    const auto splits = uneven_splits(what, rank);
    std::int64_t start = 0;
    for (int peer = 0; peer < what.rank; ++peer) start += splits[static_cast<std::size_t>(peer)];
    parts.push_back(
        uneven_rows(what, rank).narrow(0, start, splits[static_cast<std::size_t>(what.rank)]));
  }
  return {at::cat(parts)};
}

// Around the ring; rank 0 receives last, so that it works without buffers.
Tensors send_and_receive(c10d::Backend& group, const Case& what) {
  constexpr int kTag = 5;
  Tensors mine{input(what, what.rank)};
  Tensors received = blanks(what, 1);
  const int next = (what.rank + 1) % what.size;
  const int previous = (what.rank + what.size - 1) % what.size;
  if (what.rank % 2 == 0 && what.rank != last(what)) {
    wait(group.send(mine, next, kTag));
    wait(group.recv(received, previous, kTag));
  } else {
    wait(group.recv(received, previous, kTag));
    wait(group.send(mine, next, kTag));
  }
  return received;
}

Tensors expect_received(const Case& what) {
  return {values(what, what.shape.sizes, (what.rank + what.size - 1) % what.size)};
}

// Every rank has other zeros.
at::Tensor sparse_values(const Case& what, int rank) {
  at::Tensor dense = values(what, what.shape.sizes, rank);
  if (dense.size(0) > rank) dense[rank].zero_();
  return dense;
}

Tensors all_reduce_sparse(c10d::Backend& group, const Case& what) {
  Tensors tensors{sparse_values(what, what.rank).to_sparse()};
  wait(group.allreduce(tensors, reducing<c10d::AllreduceOptions>(what)));
  return {tensors[0].to_dense()};
}

Tensors expect_all_reduce_sparse(const Case& what) {
  Tensors all;
  for (int rank = 0; rank < what.size; ++rank) all.push_back(sparse_values(what, rank));
  return {reduced(what, all)};
}

// Gloo refuses strided tensors on the rank that has one, and leaves its peers waiting.
bool is_alike_everywhere(const Case& what) { return what.shape.layout != Layout::kMixed; }

// A mean of lists is refused.
bool has_no_mean(const Case& what) { return what.reduction.type != c10d::ReduceOp::AVG; }

bool can_be_sparse(const Case& what) {
  const std::string& shape = what.shape.name;
  return (shape == "one" || shape == "vector" || shape == "matrix" || shape == "large") &&
         what.dtype != at::kBool;
}

}  // namespace

const std::vector<Collective>& collectives() {
  static const std::vector<Collective> all{
      {"allreduce", true, all_reduce, expect_all_reduce},
      {"allreduce of a list", true, all_reduce_list, expect_all_reduce_list, has_no_mean},
      {"allreduce_coalesced", true, all_reduce_coalesced, expect_all_reduce_coalesced},
      {"allreduce, sparse", true, all_reduce_sparse, expect_all_reduce_sparse, can_be_sparse},
      {"reduce", true, reduce, expect_reduce},
      {"reduce_scatter", true, reduce_scatter, expect_reduce_scatter},
      {"_reduce_scatter_base", true, reduce_scatter_base,
       [](const Case& what) { return Tensors{my_share(what, 1, 0)}; }},
      {"reduce_scatter_tensor_coalesced", true, reduce_scatter_coalesced,
       [](const Case& what) {
         return Tensors{my_share(what, 1, 0), my_share(what, 2, 1)};
       }},
      {"broadcast", false, broadcast,
       [](const Case& what) { return Tensors{values(what, what.shape.sizes, last(what))}; }},
      {"broadcast of a list", false, broadcast_list,
       [](const Case& what) {
         const at::Tensor value = values(what, what.shape.sizes, 0, 1);
         return Tensors{value, value};
       }},
      {"allgather", false, all_gather, [](const Case& what) { return of_all(what); }},
      {"allgather, uneven", false, all_gather_uneven, expect_all_gather_uneven},
      {"allgather of lists", false, all_gather_lists, expect_all_gather_lists},
      {"_allgather_base", false, all_gather_base,
       [](const Case& what) { return Tensors{end_to_end(what)}; }},
      {"allgather_coalesced", false, all_gather_coalesced, expect_all_gather_coalesced},
      {"allgather_into_tensor_coalesced", false, all_gather_into_coalesced,
       [](const Case& what) {
         return Tensors{end_to_end(what, 0), end_to_end(what, 1)};
       }},
      {"gather", false, gather,
       [](const Case& what) { return what.rank == last(what) ? of_all(what) : Tensors{}; }},
      {"scatter", false, scatter,
       [](const Case& what) {
         return Tensors{values(what, what.shape.sizes, last(what), what.rank)};
       }},
      {"alltoall", false, all_to_all, expect_all_to_all},
      {"alltoall_base", false, all_to_all_base, expect_all_to_all_base, is_alike_everywhere},
      {"alltoall_base, uneven", false, all_to_all_uneven, expect_all_to_all_uneven,
       is_alike_everywhere},
      {"send and recv", false, send_and_receive, expect_received, is_alike_everywhere},
  };
  return all;
}

}  // namespace chainmail::side_by_side
