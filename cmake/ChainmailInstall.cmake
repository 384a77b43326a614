# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What `cmake --install` puts where, and the package that find_package(chainmail) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/chainmail)
# The library finds LibTorch where it was built against it; users who move LibTorch set an rpath or
# LD_LIBRARY_PATH as with any other library.
set_target_properties(chainmail PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS chainmail EXPORT chainmailTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(library chainmail_mpi chainmail_cuda chainmail_torch_nccl)
  if(TARGET ${library})
    set_target_properties(${library} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${library} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

set(linked_programs chainmail-pmix chainmail-bench chainmail-info)
if(CHAINMAIL_HWLOC_ARCHIVE)
  # The launcher then needs the C library alone. It has no run path in the build tree, from where it
  # is sent to hosts, either: CMake's ends with an empty entry, which the loader takes for the current
  # directory.
  set_target_properties(launcher PROPERTIES INSTALL_RPATH "" SKIP_BUILD_RPATH ON)
  install(TARGETS launcher RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
else()
  list(APPEND linked_programs launcher)
endif()
foreach(program ${linked_programs})
  if(TARGET ${program})
    set_target_properties(
      ${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
                            INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugin/include/chainmail
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/base/error.h ${PROJECT_SOURCE_DIR}/base/export.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chainmail)

install(EXPORT chainmailTargets NAMESPACE chainmail:: DESTINATION ${package_dir})
# A c10d::Backend is tied to the minor version of torch that it was compiled with.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" CHAINMAIL_TORCH_MINOR "${LibTorch_VERSION}")
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/chainmailConfig.cmake.in ${PROJECT_BINARY_DIR}/chainmailConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/chainmailConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/chainmailConfig.cmake
              ${PROJECT_BINARY_DIR}/chainmailConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake DESTINATION ${package_dir})
