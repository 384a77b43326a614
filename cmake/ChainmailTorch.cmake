# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Most of what such a file costs is the same for all of them: eight together take hardly longer than
# one.
#
# chainmail_compile_together(T): compiles the sources of target T in groups.
function(chainmail_compile_together target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(CHAINMAIL_UNITY AND count GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# chainmail_torch_target(T): a target whose sources include torch/torch.h, with the precompiled
# header that all such targets share (one such file costs 20 s to compile without it). A folder with
# other compile options names its own in CHAINMAIL_TORCH_PCH.
function(chainmail_torch_target target)
  chainmail_target(${target})
  chainmail_compile_together(${target})
  target_link_libraries(${target} PRIVATE torch_cpu)
  set(pch chainmail_torch_pch)
  if(CHAINMAIL_TORCH_PCH)
    set(pch ${CHAINMAIL_TORCH_PCH})
  endif()
  chainmail_use_pch(${target} ${pch})
endfunction()
