# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Libraries that we do not build ourselves.

find_package(Threads REQUIRED)
if(CHAINMAIL_RELOCATABLE)
  if(NOT EXISTS ${CHAINMAIL_THIRD_PARTY}/stamp)
    message(FATAL_ERROR "CHAINMAIL_RELOCATABLE=ON needs static glog and Highway: run "
                        "packaging/third_party/build.sh DIR and set CHAINMAIL_THIRD_PARTY=DIR")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH ${CHAINMAIL_THIRD_PARTY})
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(GFLAGS_SHARED OFF) # of programs alone: its archive is not for libraries
endif()
find_package(glog REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
if(NOT CHAINMAIL_LIBRARY)
  return()
endif()
find_package(gflags REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibTorch 2.11 REQUIRED)
if(CHAINMAIL_RELOCATABLE)
  # Torch's own assertions have the paths of its headers.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${LibTorch_ROOT}=torch>")
endif()

include(ChainmailCuda)

# Optional. The name is Open MPI's own: "mpi" may be MPICH's.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(OMPI QUIET IMPORTED_TARGET GLOBAL ompi-c)
endif()
