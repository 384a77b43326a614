# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What `cmake --install` puts where, and the package that find_package(chainmail) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The libraries find LibTorch and CUDA's runtime where they were built against them; users who move
# LibTorch set LD_LIBRARY_PATH as with any other library. CMake's own list of such places
# (INSTALL_RPATH_USE_LINK_PATH) leaves out what is below the source tree, such as .deps.
if(CHAINMAIL_RELOCATABLE)
  # Programs that link LibTorch have loaded it before they come here.
  set(linked_places ${CHAINMAIL_TORCH_PLACES})
  set(own_places OFF)
else()
  set(linked_places ${LibTorch_ROOT}/lib)
  if(CHAINMAIL_HAS_CUDA)
    get_filename_component(cudart_place ${CHAINMAIL_CUDART} DIRECTORY)
    list(APPEND linked_places ${cudart_place})
  endif()
  set(own_places ON)
endif()

# What may be left out of a build: tools/demo.sh builds the launcher and the library alone.
add_custom_target(products)

# chainmail_install(TARGET DESTINATION RUN_PATH [EXPORT ...])
function(chainmail_install target destination run_path)
  if(NOT TARGET ${target})
    return()
  endif()
  if(run_path)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${run_path}"
                                               INSTALL_RPATH_USE_LINK_PATH ${own_places})
  endif()
  add_dependencies(products ${target})
  if(target MATCHES "^(chainmail|launcher)$")
    install(TARGETS ${target} ${ARGN} DESTINATION ${destination})
  else()
    install(TARGETS ${target} DESTINATION ${destination} OPTIONAL)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
  message(STATUS \"Left out, since it is not built (target products): $<TARGET_FILE_NAME:${target}>\")
endif()")
  endif()
endfunction()

chainmail_install(chainmail ${CMAKE_INSTALL_LIBDIR} "$ORIGIN;${linked_places}" EXPORT chainmailTargets)
foreach(library chainmail_mpi chainmail_cuda chainmail_torch_nccl)
  chainmail_install(${library} ${CMAKE_INSTALL_LIBDIR} "$ORIGIN;${linked_places}")
endforeach()
set(program_path "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
foreach(program chainmail-pmix chainmail-info) # which link none of ours
  chainmail_install(${program} ${CMAKE_INSTALL_BINDIR} "")
endforeach()
chainmail_install(chainmail-bench ${CMAKE_INSTALL_BINDIR} "${program_path};${linked_places}")
foreach(program chainmail-bench-openmpi chainmail-bench-mpich)
  chainmail_install(${program} libexec/chainmail "${program_path}")
endforeach()
if(CHAINMAIL_HWLOC_ARCHIVE)
  # The launcher then needs the C library alone. It has no run path in the build tree, from where it
  # is sent to hosts, either: CMake's ends with an empty entry, which the loader takes for the current
  # directory.
  set_target_properties(launcher PROPERTIES INSTALL_RPATH "" SKIP_BUILD_RPATH ON)
  chainmail_install(launcher ${CMAKE_INSTALL_BINDIR} "")
else()
  chainmail_install(launcher ${CMAKE_INSTALL_BINDIR} ${program_path})
endif()

# Another name for it, where something else is called launcher; and its pages, which it writes itself.
function(chainmail_install_link target folder name)
  install(CODE "set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/${name}\")
message(STATUS \"Installing: \${link}\")
file(CREATE_LINK ${target} \"\${link}\" SYMBOLIC)")
endfunction()
chainmail_install_link(launcher ${CMAKE_INSTALL_BINDIR} chainmailrun)
set(pages ${PROJECT_BINARY_DIR}/pages)
set(completion_bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(completion_zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
set(completion_fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(CODE "file(MAKE_DIRECTORY \"${pages}\")
execute_process(COMMAND \"$<TARGET_FILE:launcher>\" --write-man
                OUTPUT_FILE \"${pages}/launcher.1\" COMMAND_ERROR_IS_FATAL ANY)
foreach(shell bash zsh fish)
  execute_process(COMMAND \"$<TARGET_FILE:launcher>\" --write-completion \${shell}
                  OUTPUT_FILE \"${pages}/\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
endforeach()")
install(FILES ${pages}/launcher.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
chainmail_install_link(launcher.1 ${CMAKE_INSTALL_MANDIR}/man1 chainmailrun.1)
install(FILES ${pages}/bash DESTINATION ${completion_bash} RENAME launcher)
chainmail_install_link(launcher ${completion_bash} chainmailrun)
install(FILES ${pages}/zsh DESTINATION ${completion_zsh} RENAME _launcher)
install(FILES ${pages}/fish DESTINATION ${completion_fish} RENAME launcher.fish)
chainmail_install_link(launcher.fish ${completion_fish} chainmailrun.fish)

# What makes the machines of a cloud into a cluster, and what job files have resize it.
foreach(folder node aws kubernetes)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/deploy/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/chainmail
          USE_SOURCE_PERMISSIONS)
endforeach()

if(CHAINMAIL_LIBRARY)
  include(ChainmailPackage)
endif()
