// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One copy of a model's parameters for all ranks of a node, in memory that they all map: each rank
// writes what it owns, and nothing is copied to the others.
//
// One thread per rank. Between two calls of meet() ranks may write, each its own slices, and nobody
// reads; at all other times everybody may read.

#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

#include "plugin/train/optimizer/parameter_list.h"

namespace chainmail::internal {

class SharedParameters {
 public:
  explicit SharedParameters(Communicator& communicator) : communicator_(&communicator) {}
  SharedParameters(const SharedParameters&) = delete;
  SharedParameters& operator=(const SharedParameters&) = delete;
  /// Does what release() does.
  ~SharedParameters();

  /// Moves `parameters`, which have equal values on all ranks and no memory in common, to shared
  /// memory; they stay the same tensors. Those of an earlier call must have been released.
  /// Collective.
  /// @throws InvalidArgument  on all ranks: parameters that are not dense, or ranks of a node that
  ///                          cannot map each other's memory
  void share(const std::vector<NamedTensor>& parameters);
  /// Gives this rank's parameters memory of their own again, with the same values. Local.
  void release();

  /// Returns when all ranks of the node have come. Collective.
  void meet();
  /// A program that loads a file into a module gives its parameters other memory. Calls
  /// `take(parameter, place)` for each such parameter, which copies what this rank owns of it to
  /// its place, and points the parameter there again. Local, between two calls of meet().
  void bring_back(const std::function<void(const at::Tensor&, const at::Tensor&)>& take);

 private:
  struct Placed {
    at::Tensor parameter;
    at::Tensor place;  ///< in shared memory; laid out like the parameter
  };

  Communicator* communicator_;
  std::vector<Placed> placed_;
};

}  // namespace chainmail::internal
