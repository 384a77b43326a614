// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/flat.h"

#include "ops/algorithms/pipeline.h"

namespace chainmail::ops {

void all_reduce_flat(const Comms& comms, std::byte* data, std::size_t count,
                     const Reduction& reduction, const OpContext& context) {
  if (comms.topology->node_count() == 1) {
    all_reduce_on_node(comms, data, count, reduction, context);
    return;
  }
  comms.flat->all_reduce(data, count, reduction, context);
}

}  // namespace chainmail::ops
