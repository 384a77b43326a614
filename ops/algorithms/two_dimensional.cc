// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/two_dimensional.h"

#include "ops/algorithms/pipeline.h"

namespace chainmail::ops {

void all_reduce_two_dimensional(const Comms& comms, std::byte* data, std::size_t count,
                                const Reduction& reduction, const OpContext& context,
                                std::size_t chunk_bytes) {
  if (comms.topology->node_count() == 1) {
    all_reduce_on_node(comms, data, count, reduction, context);
    return;
  }
  all_reduce_pipelined(comms, data, count, reduction, context, chunk_bytes,
                       comms.topology->min_local_size());
}

}  // namespace chainmail::ops
