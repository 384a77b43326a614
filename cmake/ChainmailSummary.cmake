# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# One table at the end of configure: what was found, and what each absence switches off.

find_program(CHAINMAIL_MPIEXEC mpiexec)
find_program(CHAINMAIL_CLANG_FORMAT NAMES clang-format-14)
mark_as_advanced(CHAINMAIL_MPIEXEC CHAINMAIL_CLANG_FORMAT)

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
if(NOT CHAINMAIL_LIBRARY)
  message(STATUS "  the launcher alone (CHAINMAIL_LIBRARY=OFF)")
  return()
endif()
chainmail_summary_row("LibTorch" "${LibTorch_VERSION} at ${LibTorch_ROOT}" "")
if(CHAINMAIL_HAS_CUDA)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " cuda_architectures)
  chainmail_summary_row("CUDA" "${CMAKE_CUDA_COMPILER_VERSION} for ${cuda_architectures}, ${CHAINMAIL_NCCL_INCLUDE}/nccl.h" "")
else()
  chainmail_summary_row("CUDA" "" "no libchainmail_cuda.so, CPU tensors only (${CHAINMAIL_NO_CUDA_REASON})")
endif()
chainmail_summary_row("Open MPI" "${OMPI_VERSION}"
                      "no libchainmail_mpi.so, --cross mpi is refused (libopenmpi-dev)")
chainmail_summary_row("mpiexec" "${CHAINMAIL_MPIEXEC}" "tests under mpiexec are skipped")
chainmail_summary_row("PMIx" "${PMIX_VERSION}"
                      "no chainmail-pmix, our launcher cannot start Open MPI programs (libpmix-dev)")
chainmail_summary_row("clang-format" "${CHAINMAIL_CLANG_FORMAT}" "the format test is skipped")
chainmail_summary_row("ccache" "${CCACHE_PROGRAM}" "every build compiles everything")
