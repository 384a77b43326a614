# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Sets CHAINMAIL_HAS_CUDA where libchainmail_cuda.so can be built, else CHAINMAIL_NO_CUDA_REASON.
# nvcc, nccl.h and CUDA's runtime may come from a toolkit or from the PyPI packages beside torch.

# The CUDA parts of a PyPI set-up lie beside torch, not in a toolkit's place.
if(LibTorch_ROOT)
  file(GLOB CHAINMAIL_NVIDIA_WHEELS ${LibTorch_ROOT}/../nvidia/cu* ${LibTorch_ROOT}/../nvidia/nccl)
endif()
find_program(CHAINMAIL_NVCC nvcc PATHS ${CHAINMAIL_NVIDIA_WHEELS} /usr/local/cuda PATH_SUFFIXES bin)
find_path(CHAINMAIL_NCCL_INCLUDE nccl.h PATHS ${CHAINMAIL_NVIDIA_WHEELS} /usr/local/cuda
          PATH_SUFFIXES include)
mark_as_advanced(CHAINMAIL_NVCC CHAINMAIL_NCCL_INCLUDE)

set(CHAINMAIL_HAS_CUDA OFF)
if(CHAINMAIL_CUDA STREQUAL "OFF")
  set(CHAINMAIL_NO_CUDA_REASON "switched off (CHAINMAIL_CUDA=OFF)")
elseif(CHAINMAIL_SANITIZE)
  set(CHAINMAIL_NO_CUDA_REASON "not built with sanitizers")
elseif(NOT CHAINMAIL_NVCC)
  set(CHAINMAIL_NO_CUDA_REASON "no nvcc")
elseif(NOT CHAINMAIL_NCCL_INCLUDE)
  set(CHAINMAIL_NO_CUDA_REASON "no nccl.h (pip: nvidia-nccl-cu13, Debian: libnccl-dev)")
else()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${CHAINMAIL_NVCC})
  endif()
  get_filename_component(cuda_root ${CHAINMAIL_NVCC}/../.. REALPATH)
  # PyPI's package has the library under its version's name only.
  find_library(CHAINMAIL_CUDART NAMES cudart libcudart.so.13 libcudart.so.12
               HINTS ${cuda_root} ${CHAINMAIL_NVIDIA_WHEELS} PATH_SUFFIXES lib64 lib)
  mark_as_advanced(CHAINMAIL_CUDART)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${CHAINMAIL_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    if(nvcc_version MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.8)
      # Code for Ampere, Hopper and Blackwell, and PTX for what comes after.
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CHAINMAIL_NO_CUDA_REASON "${CHAINMAIL_NVCC} does not work with this compiler")
  elseif(NOT CHAINMAIL_CUDART)
    set(CHAINMAIL_NO_CUDA_REASON "no libcudart")
  else()
    enable_language(CUDA)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    endif()
    set(CHAINMAIL_HAS_CUDA ON)
  endif()
endif()
if(CHAINMAIL_CUDA STREQUAL "ON" AND NOT CHAINMAIL_HAS_CUDA)
  message(FATAL_ERROR "CHAINMAIL_CUDA=ON, but: ${CHAINMAIL_NO_CUDA_REASON}")
endif()
