# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# chainmail_target(T): include root, warnings and checkers for a target of this repository.
#
# chainmail_pch(NAME LIBRARIES ... HEADERS ...): a precompiled header of what these libraries are used
# by, and chainmail_use_pch(T NAME): compiles T with it.
#
# chainmail_compile_together(T): compiles the sources of target T in groups. Most of what a file that
# includes torch or Asio costs is the same for all of them: eight together take hardly longer than one.

function(chainmail_target target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
               -Woverloaded-virtual $<$<BOOL:${CHAINMAIL_WERROR}>:-Werror>)
  target_compile_options(${target} PRIVATE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${warnings}>")
  if(CHAINMAIL_HAS_CUDA)
    # What nvcc makes of a source for the host compiler is not ours to warn about.
    target_compile_options(
      ${target} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CHAINMAIL_WERROR}>>:-Werror=all-warnings>")
  endif()
  if(CHAINMAIL_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${CHAINMAIL_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${CHAINMAIL_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # Sanitizers hide what is set and how long a moved std::string is: GCC 12 sees faults in
      # torch's headers, and in the library's, that are none.
      target_compile_options(${target} PRIVATE -Wno-error=maybe-uninitialized
                                               -Wno-error=array-bounds)
    endif()
    if(CHAINMAIL_SANITIZE STREQUAL thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # Asio's fences stand beside locks that the checker sees.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
  if(CHAINMAIL_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(CHAINMAIL_CLANG_TIDY)
    # GCC 12 knows warnings that clang 14 does not.
    set_target_properties(
      ${target} PROPERTIES CXX_CLANG_TIDY
                           "${CHAINMAIL_CLANG_TIDY_PROGRAM};--extra-arg=-Wno-unknown-warning-option")
  endif()
endfunction()

function(chainmail_compile_together target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(CHAINMAIL_UNITY AND count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

function(chainmail_pch name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "") # unlike WRITE, leaves an equal file alone
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  chainmail_target(${name})
  chainmail_compile_for_pch(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

function(chainmail_use_pch target name)
  if(CHAINMAIL_UNITY)
    chainmail_compile_for_pch(${target})
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# Libraries and programs alike, as one header for both needs it (CMake would give programs -fPIE).
function(chainmail_compile_for_pch target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
