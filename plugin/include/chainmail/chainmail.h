// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Everything that a training program needs. The c10d way in is <chainmail/backend.h>.

#pragma once

#include <chainmail/agreement.h>
#include <chainmail/allreduce_persistent.h>
#include <chainmail/batch_norm.h>
#include <chainmail/checkpoint.h>
#include <chainmail/communicator.h>
#include <chainmail/cuda.h>
#include <chainmail/dataset.h>
#include <chainmail/distributed_model.h>
#include <chainmail/error.h>
#include <chainmail/evaluator.h>
#include <chainmail/functions.h>
#include <chainmail/idx.h>
#include <chainmail/iterators.h>
#include <chainmail/loss_scaler.h>
#include <chainmail/mean_grad.h>
#include <chainmail/optimizer.h>
#include <chainmail/program.h>
#include <chainmail/report.h>
#include <chainmail/sampler.h>
#include <chainmail/terminate.h>
#include <chainmail/timing.h>
#include <chainmail/triggers.h>
