# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What a user may switch, and the settings that every target of ours gets.

option(CHAINMAIL_LIBRARY "Build the library and all that needs LibTorch; OFF: the launcher alone" ON)
option(CHAINMAIL_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
if(NOT CHAINMAIL_LIBRARY)
  set(CHAINMAIL_BUILD_TESTS OFF)
endif()
option(CHAINMAIL_INSTALL "Generate the install rules" ${PROJECT_IS_TOP_LEVEL})
set(CHAINMAIL_CUDA AUTO CACHE STRING "Build libchainmail_cuda.so: AUTO (where nvcc is), ON, OFF")
set_property(CACHE CHAINMAIL_CUDA PROPERTY STRINGS AUTO ON OFF)
option(CHAINMAIL_WERROR "Warnings are errors" OFF)
option(CHAINMAIL_CLANG_TIDY "Run clang-tidy-14 on every file of ours" OFF)
set(CHAINMAIL_SANITIZE "" CACHE STRING "Build with sanitizers: address, undefined, both, or thread")
set_property(CACHE CHAINMAIL_SANITIZE PROPERTY STRINGS "" address undefined address,undefined
                                               thread)
if(NOT CHAINMAIL_SANITIZE MATCHES "^(|address|undefined|address,undefined|thread)$")
  message(FATAL_ERROR "CHAINMAIL_SANITIZE=${CHAINMAIL_SANITIZE}: use address, undefined, "
                      "address,undefined or thread")
endif()
# OFF for clangd, and to see whether every file includes what it needs.
option(CHAINMAIL_UNITY "Compile files that include torch or Asio in groups, and with precompiled headers" ON)
# For packages: what is installed works wherever it is put, needs nothing but the C and C++ libraries,
# zlib and what it opens on demand, and is the same whichever folder it was built in.
option(CHAINMAIL_RELOCATABLE "Static glog, Highway and OpenSSL inside; run paths from $ORIGIN alone" OFF)
set(CHAINMAIL_THIRD_PARTY "" CACHE PATH "With CHAINMAIL_RELOCATABLE: where packaging/third_party/build.sh installed")
set(CHAINMAIL_TORCH_PLACES "$ORIGIN/../libtorch/lib"
    CACHE STRING "With CHAINMAIL_RELOCATABLE: where the installed libraries look for LibTorch and CUDA")
option(CHAINMAIL_LONG_TESTS "Also tests that take long and show what shorter ones nearly do" OFF)
option(CHAINMAIL_FUZZ "Build libFuzzer programs, with sanitizers (clang only)" OFF)
if(CHAINMAIL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "CHAINMAIL_FUZZ=ON needs clang: -DCMAKE_CXX_COMPILER=clang++-14")
  endif()
  set(CHAINMAIL_SANITIZE address,undefined)
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
# Functions and lines are what a trace of the stack needs; with variables, which CMake's default adds,
# a file of the launcher takes half as long again to compile. A debugger wants -DCMAKE_BUILD_TYPE=Debug.
if(PROJECT_IS_TOP_LEVEL)
  string(REPLACE "-O2 -g -DNDEBUG" "-O2 -g1 -DNDEBUG" CMAKE_CXX_FLAGS_RELWITHDEBINFO
                 "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(CHAINMAIL_RELOCATABLE)
  foreach(language C CXX)
    add_compile_options("$<$<COMPILE_LANGUAGE:${language}>:-ffile-prefix-map=${PROJECT_BINARY_DIR}=build>"
                        "$<$<COMPILE_LANGUAGE:${language}>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=chainmail>")
  endforeach()
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
if(CHAINMAIL_CLANG_TIDY)
  find_program(CHAINMAIL_CLANG_TIDY_PROGRAM NAMES clang-tidy-14 REQUIRED)
endif()
