# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# One table at the end of configure: what was found, and what each absence switches off.

# The CUDA parts of a PyPI set-up lie beside torch, not in a toolkit's place.
if(LibTorch_ROOT)
  file(GLOB CHAINMAIL_NVIDIA_WHEELS ${LibTorch_ROOT}/../nvidia/cu* ${LibTorch_ROOT}/../nvidia/nccl)
endif()
find_program(CHAINMAIL_NVCC nvcc PATHS ${CHAINMAIL_NVIDIA_WHEELS} /usr/local/cuda PATH_SUFFIXES bin)
find_file(CHAINMAIL_NCCL_HEADER nccl.h PATHS ${CHAINMAIL_NVIDIA_WHEELS} PATH_SUFFIXES include)
find_file(CHAINMAIL_PMIX_HEADER pmix.h PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2
          PATH_SUFFIXES include)
find_program(CHAINMAIL_MPIEXEC mpiexec)
find_program(CHAINMAIL_CLANG_FORMAT NAMES clang-format-14)
mark_as_advanced(CHAINMAIL_NVCC CHAINMAIL_NCCL_HEADER CHAINMAIL_PMIX_HEADER CHAINMAIL_MPIEXEC
                 CHAINMAIL_CLANG_FORMAT)

# chainmail_summary_row(NAME VALUE WITHOUT): a false VALUE means not found.
function(chainmail_summary_row name value without)
  string(LENGTH "${name}" length)
  math(EXPR pad "14 - ${length}")
  string(REPEAT " " ${pad} padding)
  if(value)
    message(STATUS "  ${name}${padding}${value}")
  else()
    message(STATUS "  ${name}${padding}not found: ${without}")
  endif()
endfunction()

message(STATUS "Chainmail ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} "
               "${CMAKE_CXX_COMPILER_VERSION}")
chainmail_summary_row("LibTorch" "${LibTorch_VERSION} at ${LibTorch_ROOT}" "")
chainmail_summary_row("CUDA toolkit" "${CHAINMAIL_NVCC}" "CPU tensors only")
chainmail_summary_row("NCCL" "${CHAINMAIL_NCCL_HEADER}" "no transport between GPUs")
chainmail_summary_row("Open MPI" "${OMPI_VERSION}"
                      "no libchainmail_mpi.so, --cross mpi is refused (libopenmpi-dev)")
chainmail_summary_row("mpiexec" "${CHAINMAIL_MPIEXEC}" "tests under mpiexec are skipped")
chainmail_summary_row("PMIx" "${CHAINMAIL_PMIX_HEADER}"
                      "ranks of our launcher cannot call MPI_Init together")
chainmail_summary_row("clang-format" "${CHAINMAIL_CLANG_FORMAT}" "the format test is skipped")
chainmail_summary_row("ccache" "${CCACHE_PROGRAM}" "every build compiles everything")
