# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Writes OUTPUT, a header that says which commit of SOURCE is being built; touches it only when that
# changes.   cmake -D SOURCE=... -D OUTPUT=... -P commit.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude * RESULT_VARIABLE code
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT code EQUAL 0)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define CHAINMAIL_COMMIT \"@commit@\"\n" @ONLY)
