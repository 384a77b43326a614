// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Everything that a training program needs. The c10d way in is <chainmail/backend.h>.

#pragma once

/// @namespace chainmail
/// All that programs use. What is in `chainmail::internal` may change in any version.

#include <chainmail/checkpoint.h>
#include <chainmail/communicator.h>
#include <chainmail/cuda.h>
#include <chainmail/data/iterators.h>
#include <chainmail/data/sampler.h>
#include <chainmail/dataset.h>
#include <chainmail/elastic.h>
#include <chainmail/error.h>
#include <chainmail/idx.h>
#include <chainmail/nn/allreduce_persistent.h>
#include <chainmail/nn/batch_norm.h>
#include <chainmail/nn/functions.h>
#include <chainmail/nn/parallel/chain.h>
#include <chainmail/nn/parallel/chain_list.h>
#include <chainmail/nn/parallel/layers.h>
#include <chainmail/nn/parallel/n_step_rnn.h>
#include <chainmail/nn/parallel/pipeline.h>
#include <chainmail/nn/sharded.h>
#include <chainmail/optimizer.h>
#include <chainmail/report.h>
#include <chainmail/report/timing.h>
#include <chainmail/terminate.h>
#include <chainmail/train/agreement.h>
#include <chainmail/train/distributed_model.h>
#include <chainmail/train/evaluator.h>
#include <chainmail/train/loss_scaler.h>
#include <chainmail/train/mean_grad.h>
#include <chainmail/train/program.h>
#include <chainmail/train/triggers.h>
