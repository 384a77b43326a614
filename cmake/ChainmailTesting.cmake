# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# chainmail_test(NAME LABEL ring SOURCES ... LIBRARIES ... [TIMEOUT s] [PROCESSORS n]): a test without
# ranks, or with ranks as threads or processes of its own. It takes one processor; in the ring
# `threads`, where ranks are threads that spin, two.
#
# chainmail_rank_test(NAME SOURCES ... [LIBRARIES ...] RANKS 1 2 4 [TIMEOUT s] [MPI]): a test whose
# ranks are processes, started by our own launcher once per number of ranks (ctest NAME_2, label
# ranks). Every rank runs the whole program, so its main() is gtest's unless SOURCES has one. With
# MPI it runs once more, at 2 ranks, under mpiexec (label mpi).
#
# chainmail_test_program(PROGRAM LIBRARIES ...): tests that say PROGRAM, instead of LIBRARIES, are parts of
# this one and are run one by one nevertheless. Their first source has the tests; what is in unnamed
# namespaces has other names in each, since sources of a program are compiled in groups.
#
# chainmail_skip(NAME LABEL ring REASON text): keeps the place of a test that cannot run here and
# prints why.

# Sanitizers make programs several times slower; time limits grow with them. What tests in C++ may
# stretch their bounds by is in tests/support/patience.h, which all of them are linked with.

find_package(GTest REQUIRED)
find_program(CHAINMAIL_MPIEXEC mpiexec)

set(CHAINMAIL_TEST_PATIENCE 1)
if(CHAINMAIL_SANITIZE)
  set(CHAINMAIL_TEST_PATIENCE 4)
endif()

function(chainmail_test_program name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  add_executable(${name})
  chainmail_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} chainmail_patience chainmail_sources_main
                                        GTest::gmock)
  if(CHAINMAIL_UNITY)
    # More would take long to compile again for a line in one.
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
endfunction()

# The program of a test, its own or PROGRAM, and what runs it there, as `command`.
macro(_chainmail_test_command name)
  if(ARG_PROGRAM)
    list(GET ARG_SOURCES 0 source)
    cmake_path(GET source STEM source)
    list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    target_sources(${ARG_PROGRAM} PRIVATE ${ARG_SOURCES})
    set(command $<TARGET_FILE:${ARG_PROGRAM}> --source=${source})
  else()
    add_executable(${name} ${ARG_SOURCES})
    chainmail_target(${name})
    if(CHAINMAIL_TEST_PCH)
      chainmail_use_pch(${name} ${CHAINMAIL_TEST_PCH})
    endif()
    target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} chainmail_patience GTest::gtest_main
                                          GTest::gmock)
    set(command $<TARGET_FILE:${name}>)
  endif()
endmacro()

function(chainmail_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;PROCESSORS;PROGRAM" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 240)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
    if(ARG_LABEL STREQUAL "threads")
      set(ARG_PROCESSORS 2)
    endif()
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${CHAINMAIL_TEST_PATIENCE}")
  _chainmail_test_command(${name})
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} PROCESSORS
                                             ${ARG_PROCESSORS})
endfunction()

function(chainmail_skip name)
  cmake_parse_arguments(ARG "" "LABEL;REASON" "" ${ARGN})
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${ARG_REASON}")
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()

function(chainmail_rank_test name)
  cmake_parse_arguments(ARG "MPI" "TIMEOUT;PROGRAM" "SOURCES;LIBRARIES;RANKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${CHAINMAIL_TEST_PATIENCE}")
  _chainmail_test_command(${name})
  # The launcher ends the ranks and says where each was; ctest's own limit is the second line.
  math(EXPR ctest_timeout "${ARG_TIMEOUT} + 15")
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}_${ranks}
             COMMAND launcher -H localhost:${ranks} -n ${ranks} --tag-output --timeout
                     ${ARG_TIMEOUT} ${command})
    set_tests_properties(
      ${name}_${ranks} PROPERTIES LABELS ranks TIMEOUT ${ctest_timeout} PROCESSORS ${ranks})
  endforeach()
  if(ARG_MPI AND CHAINMAIL_MPIEXEC)
    add_test(NAME ${name}_mpiexec
             COMMAND ${CHAINMAIL_MPIEXEC} -n 2 --oversubscribe --allow-run-as-root --bind-to none
                     ${command})
    set_tests_properties(
      ${name}_mpiexec PROPERTIES LABELS mpi TIMEOUT ${ctest_timeout} PROCESSORS 2)
  elseif(ARG_MPI)
    chainmail_skip(${name}_mpiexec LABEL mpi REASON "mpiexec is missing: install openmpi-bin")
  endif()
endfunction()
