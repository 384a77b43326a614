# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# chainmail_torch_target(T): a target whose sources include torch/torch.h, with the precompiled
# header that all such targets share (one such file costs 20 s to compile without it). A folder with
# other compile options, or that does without most of it, names its own in CHAINMAIL_TORCH_PCH.
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
