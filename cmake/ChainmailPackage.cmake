# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The headers, and the package that find_package(chainmail) reads.

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/chainmail)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugin/include/chainmail
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/base/error.h ${PROJECT_SOURCE_DIR}/base/export.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/chainmail)

install(EXPORT chainmailTargets NAMESPACE chainmail:: DESTINATION ${package_dir})
# Where the package looks for LibTorch by itself.
set(CHAINMAIL_LIBTORCH_PLACES ${LibTorch_ROOT})
if(CHAINMAIL_RELOCATABLE)
  set(CHAINMAIL_LIBTORCH_PLACES "\${PACKAGE_PREFIX_DIR}/libtorch;\${PACKAGE_PREFIX_DIR}/../torch")
endif()
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
