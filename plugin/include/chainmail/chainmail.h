// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Everything that a training program needs. The c10d way in is <chainmail/backend.h>.

#pragma once

#include <chainmail/agreement.h>
#include <chainmail/communicator.h>
#include <chainmail/cuda.h>
#include <chainmail/dataset.h>
#include <chainmail/error.h>
#include <chainmail/evaluator.h>
#include <chainmail/idx.h>
#include <chainmail/optimizer.h>
#include <chainmail/report.h>
