// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/encryption.h"

#include "base/error.h"

namespace chainmail::ops {

void check_carrier(const GroupOptions& options, const Topology& topology,
                   const std::string& carrier, const std::string& instead) {
  if (options.encryption == Encryption::kOff || topology.node_count() <= 1) return;
  throw InvalidArgument("group " + options.name + " is to " + to_string(options.encryption) +
                        " data between nodes, and " + carrier + " would carry them over " +
                        topology.describe() + " without; " + instead +
                        ", or set CHAINMAIL_ENCRYPT=off where the network can be trusted");
}

}  // namespace chainmail::ops
