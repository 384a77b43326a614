// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Visibility of public symbols. Everything else in the libraries is hidden.

#ifndef CHAINMAIL_EXPORT_H_
#define CHAINMAIL_EXPORT_H_

/// Before what programs may use of the libraries: everything else in them is hidden.
#define CHAINMAIL_API __attribute__((visibility("default")))

#endif  // CHAINMAIL_EXPORT_H_
