// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The training itself: joins the job, reads the data, trains, reports.

#pragma once

#include <memory>

#include <chainmail/communicator.h>

#include "options.h"

/// Joins the job. Throws chainmail::InvalidArgument when the options name no communicator.
std::shared_ptr<chainmail::Communicator> join(const Options& options);

/// Trains as `options` say; every rank calls it. Throws chainmail::Error.
void train(const Options& options, const std::shared_ptr<chainmail::Communicator>& comm);
