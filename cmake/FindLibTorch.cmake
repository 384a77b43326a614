# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# find_package(LibTorch): imported targets c10 and torch_cpu (c10_cuda and torch_cuda where the
# files are present) from the torch folder of a PyPI wheel or from an unpacked LibTorch archive.
#
# Not find_package(Torch): against a CUDA build that insists on a CUDA toolkit, links torch_cuda,
# which makes every CPU program start three times slower, and adds flags that nvcc 13 refuses.
# A project that wants find_package(Torch) too calls it first; its targets are used then.
#
# Looked for in this order:
#   what find_package(Torch) has found, CHAINMAIL_LIBTORCH (cache or environment), .deps/venv of this
#   repository, CMAKE_PREFIX_PATH
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_ROOT (the folder with include/ and lib/).

if(NOT CHAINMAIL_LIBTORCH AND DEFINED ENV{CHAINMAIL_LIBTORCH})
  set(CHAINMAIL_LIBTORCH $ENV{CHAINMAIL_LIBTORCH})
endif()
set(CHAINMAIL_LIBTORCH "${CHAINMAIL_LIBTORCH}"
    CACHE PATH "The torch folder of a wheel, or an unpacked LibTorch")

set(_libtorch_place "${CHAINMAIL_LIBTORCH}")
if(TARGET torch_cpu AND TORCH_INSTALL_PREFIX)
  set(_libtorch_place ${TORCH_INSTALL_PREFIX})
endif()
# What was found is cached piece by piece. It is looked for again where another place was named since, or
# where it has gone.
if((DEFINED LibTorch_PLACE AND NOT LibTorch_PLACE STREQUAL _libtorch_place)
   OR (LibTorch_INCLUDE_DIR AND NOT EXISTS ${LibTorch_INCLUDE_DIR}/ATen/ATen.h))
  foreach(_libtorch_part INCLUDE_DIR c10_LIBRARY torch_cpu_LIBRARY c10_cuda_LIBRARY torch_cuda_LIBRARY)
    unset(LibTorch_${_libtorch_part} CACHE)
  endforeach()
endif()
set(LibTorch_PLACE "${_libtorch_place}" CACHE INTERNAL "What was named when the LibTorch here was found")
unset(_libtorch_place)

if(TARGET torch_cpu AND TORCH_INSTALL_PREFIX)
  find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATHS ${TORCH_INSTALL_PREFIX}/include NO_DEFAULT_PATH)
elseif(CHAINMAIL_LIBTORCH)
  find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATHS ${CHAINMAIL_LIBTORCH}/include NO_DEFAULT_PATH)
  if(NOT LibTorch_INCLUDE_DIR)
    message(SEND_ERROR "CHAINMAIL_LIBTORCH=${CHAINMAIL_LIBTORCH} has no include/ATen/ATen.h; give "
                       "the 'torch' folder of a wheel or the folder of an unpacked LibTorch")
  endif()
else()
  file(GLOB _libtorch_venv ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch/include)
  find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATHS ${_libtorch_venv} NO_DEFAULT_PATH)
  find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATH_SUFFIXES torch/include)
  unset(_libtorch_venv)
endif()

if(LibTorch_INCLUDE_DIR)
  get_filename_component(LibTorch_ROOT ${LibTorch_INCLUDE_DIR} DIRECTORY)
  # The numbers moved to headeronly/ in 2.9.
  foreach(_libtorch_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS ${LibTorch_INCLUDE_DIR}/${_libtorch_header})
      file(STRINGS ${LibTorch_INCLUDE_DIR}/${_libtorch_header} _libtorch_lines
           REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      string(REGEX MATCHALL "[0-9]+" _libtorch_numbers "${_libtorch_lines}")
      list(JOIN _libtorch_numbers "." LibTorch_VERSION)
    endif()
  endforeach()
  find_library(LibTorch_c10_LIBRARY c10 PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LibTorch_torch_cpu_LIBRARY torch_cpu PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LibTorch_c10_cuda_LIBRARY c10_cuda PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LibTorch_torch_cuda_LIBRARY torch_cuda PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_c10_LIBRARY LibTorch_torch_cpu_LIBRARY
                   LibTorch_c10_cuda_LIBRARY LibTorch_torch_cuda_LIBRARY)
endif()

set(_libtorch_advice "set CHAINMAIL_LIBTORCH to the torch folder of a wheel, or to an unpacked LibTorch")
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/../tools/setup.sh)
  string(PREPEND _libtorch_advice "run tools/setup.sh, or ")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "${_libtorch_advice}")
unset(_libtorch_advice)

if(LibTorch_FOUND AND NOT TARGET torch_cpu)
  # Wheels since 2.7 use the new ABI; older archives say what they use.
  set(_libtorch_abi 1)
  set(_libtorch_config ${LibTorch_ROOT}/share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${_libtorch_config})
    file(STRINGS ${_libtorch_config} _libtorch_lines REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(_libtorch_lines)
      set(_libtorch_abi 0)
    endif()
  endif()

  add_library(c10 SHARED IMPORTED)
  set_target_properties(
    c10
    PROPERTIES
      IMPORTED_LOCATION ${LibTorch_c10_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
      INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${_libtorch_abi})

  # The linker wants to see what libtorch_cpu needs itself (cudart, cupti of the CUDA wheels).
  file(GLOB _libtorch_nvidia ${LibTorch_ROOT}/../nvidia/*/lib)
  list(TRANSFORM _libtorch_nvidia PREPEND "LINKER:-rpath-link," OUTPUT_VARIABLE _libtorch_link)

  # USE_C10D_GLOO is left to those who include ProcessGroupGloo.hpp: gloo's headers are not shipped.
  add_library(torch_cpu SHARED IMPORTED)
  set_target_properties(
    torch_cpu
    PROPERTIES IMPORTED_LOCATION ${LibTorch_torch_cpu_LIBRARY}
               INTERFACE_LINK_LIBRARIES c10
               INTERFACE_LINK_OPTIONS "${_libtorch_link}"
               INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_RPC;USE_TENSORPIPE")

  foreach(_libtorch_part c10_cuda torch_cuda)
    if(LibTorch_${_libtorch_part}_LIBRARY AND NOT TARGET ${_libtorch_part})
      add_library(${_libtorch_part} SHARED IMPORTED)
      set_target_properties(
        ${_libtorch_part} PROPERTIES IMPORTED_LOCATION ${LibTorch_${_libtorch_part}_LIBRARY}
                                     INTERFACE_LINK_LIBRARIES torch_cpu)
    endif()
  endforeach()
  if(TARGET torch_cuda)
    set_target_properties(torch_cuda PROPERTIES INTERFACE_COMPILE_DEFINITIONS USE_C10D_NCCL)
  endif()
  unset(_libtorch_abi)
  unset(_libtorch_config)
  unset(_libtorch_nvidia)
  unset(_libtorch_link)
endif()
