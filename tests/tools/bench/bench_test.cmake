# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs the benchmark on a few sizes and reads what it wrote: every line is JSON with the promised
# members, and no element is wrong. Speed is not judged here.
#   cmake -D LAUNCHER=... -D BENCH=... -D RANKS=... -D OUTPUT=... -P bench_test.cmake

file(REMOVE ${OUTPUT})
set(sizes 4 1000 300000)
list(JOIN sizes "," size_list)
execute_process(
  COMMAND ${LAUNCHER} -H localhost:${RANKS} -n ${RANKS} --timeout 90 ${BENCH} --sizes=${size_list}
          -n 3 -w 1 --rounds 2 --against gloo -d ${DTYPE} -o ${REDOP} -J ${OUTPUT}
  RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the benchmark ended with ${code}")
endif()

file(STRINGS ${OUTPUT} lines)
list(LENGTH lines count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "${count} lines instead of 3 in ${OUTPUT}")
endif()
foreach(line expected_size IN ZIP_LISTS lines sizes)
  foreach(member op size dtype ranks ours_us base base_us ratio wrong)
    string(JSON ${member} GET "${line}" ${member})
  endforeach()
  set(got "${op} ${size} ${dtype} ${ranks} ${base} ${wrong}")
  set(expected "all_reduce ${expected_size} ${DTYPE} ${RANKS} gloo 0")
  if(NOT got STREQUAL expected)
    message(FATAL_ERROR "\"${got}\" instead of \"${expected}\" in: ${line}")
  endif()
  foreach(time ours_us base_us ratio)
    if(NOT ${time} GREATER 0)
      message(FATAL_ERROR "${time} is ${${time}} in: ${line}")
    endif()
  endforeach()
endforeach()
file(REMOVE ${OUTPUT})
