// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#pragma once

#include <memory>

#include <chainmail/communicator.h>

#include "options.h"

/// The learning rate after `epoch` epochs, parts of one included: grows from that of one rank to
/// `ranks` times as much (Goyal et al., 2017), a tenth after half of all epochs, a hundredth after
/// three quarters.
double learning_rate(const Options& options, int ranks, double epoch);

/// Trains as `options` say; every rank calls it. Throws chainmail::Error.
void train(const Options& options, const std::shared_ptr<chainmail::Communicator>& comm);
