# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# chainmail_torch_target(T): a target whose sources include torch/torch.h, with the precompiled
# header that all such targets share (one such file costs 20 s to compile without it).

function(chainmail_torch_target target)
  chainmail_target(${target})
  target_link_libraries(${target} PRIVATE torch_cpu)
  # One precompiled header serves libraries and programs only when both are compiled alike; CMake
  # would give programs -fPIE.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM chainmail_torch_pch)
endfunction()
