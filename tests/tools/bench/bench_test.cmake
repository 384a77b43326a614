# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs the benchmark on a few sizes and reads what it wrote: every line is JSON with the promised
# members, and no element is wrong. Speed is not judged here.
#   cmake -D LAUNCHER=... -D BENCH=... -D RANKS=... -D AGAINST=gloo,mpi -D FLAGS=... -D OUTPUT=...
#         -P bench_test.cmake
# With --nodes among FLAGS the benchmark starts the launcher itself.

file(REMOVE ${OUTPUT} ${OUTPUT}.svg)
set(sizes 4 1000 300000)
list(JOIN sizes "," size_list)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
set(start ${LAUNCHER} -H localhost:${RANKS} -n ${RANKS} --timeout 150)
if(FLAGS MATCHES "--nodes")
  set(start)
endif()
execute_process(
  COMMAND ${start} ${BENCH} --sizes=${size_list} -n 3 -w 1 --rounds 2 --against ${AGAINST} -d
          ${DTYPE} -o ${REDOP} -J ${OUTPUT} --plot ${OUTPUT}.svg ${flags}
  RESULT_VARIABLE code)
if(code EQUAL 77)
  return() # the reason was printed after "skipped: "
endif()
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the benchmark ended with ${code}")
endif()

set(expected_lines)
string(REPLACE "," ";" bases ${AGAINST})
foreach(size IN LISTS sizes)
  foreach(base IN LISTS bases)
    list(APPEND expected_lines "all_reduce ${size} ${DTYPE} ${RANKS} ${base} 0 0")
  endforeach()
endforeach()
file(STRINGS ${OUTPUT} lines)
list(LENGTH lines count)
list(LENGTH expected_lines expected_count)
if(NOT count EQUAL expected_count)
  message(FATAL_ERROR "${count} lines instead of ${expected_count} in ${OUTPUT}")
endif()
foreach(line expected IN ZIP_LISTS lines expected_lines)
  foreach(member op size dtype ranks ours_us base base_us ratio wrong base_wrong)
    string(JSON ${member} GET "${line}" ${member})
  endforeach()
  set(got "${op} ${size} ${dtype} ${ranks} ${base} ${wrong} ${base_wrong}")
  if(NOT got STREQUAL expected)
    message(FATAL_ERROR "\"${got}\" instead of \"${expected}\" in: ${line}")
  endif()
  foreach(time ours_us base_us ratio)
    if(NOT ${time} GREATER 0)
      message(FATAL_ERROR "${time} is ${${time}} in: ${line}")
    endif()
  endforeach()
endforeach()
file(READ ${OUTPUT}.svg picture)
if(NOT picture MATCHES "^<svg .*</svg>\n$")
  message(FATAL_ERROR "${OUTPUT}.svg is no picture")
endif()
file(REMOVE ${OUTPUT} ${OUTPUT}.svg)
