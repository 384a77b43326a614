// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Visibility of public symbols. Everything else in the libraries is hidden.

#pragma once

#define CHAINMAIL_API __attribute__((visibility("default")))
