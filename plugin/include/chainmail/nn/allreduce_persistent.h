// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The mean over the ranks of what a model keeps besides parameters, such as the running statistics
// of an ordinary batch normalization; ChainerMN's AllreducePersistent.

#pragma once

#include <memory>

#include <chainmail/communicator.h>
#include <chainmail/export.h>
#include <chainmail/train/module_ref.h>

namespace chainmail {

/// Averages the buffers of a model. Call it after each epoch, before evaluation and snapshots. One
/// thread per rank.
class CHAINMAIL_API AllreducePersistent {
 public:
  /// Keeps both. Local.
  /// @throws InvalidArgument  no model or no communicator
  AllreducePersistent(ModuleRef model, std::shared_ptr<Communicator> communicator);

  /// Replaces every floating-point buffer of the model by its mean over the ranks, in place and
  /// never rounded to allreduce_grad_dtype; counters stay. Means and variances are averaged one by
  /// one: the spread of the ranks' means is no part of the result. Collective.
  /// @throws MismatchError  ranks have different buffers
  void operator()();

 private:
  ModuleRef model_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace chainmail
