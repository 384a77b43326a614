# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Libraries that we do not build ourselves.

find_package(Threads REQUIRED)
find_package(glog REQUIRED)
find_package(gflags REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(LibTorch 2.11 REQUIRED)

include(ChainmailCuda)

# Optional. The name is Open MPI's own: "mpi" may be MPICH's.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(OMPI QUIET IMPORTED_TARGET GLOBAL ompi-c)
endif()
