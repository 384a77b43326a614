// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The same training in a job whose result does not depend on how many ranks there are.

#pragma once

/// With the flags of train_mnist. Collective.
void train_in_shards();
