# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Chainmail for Python: the process group backend "chainmail" of torch.distributed.

    import chainmail, torch.distributed as dist

    dist.init_process_group("chainmail")

Everything that takes a process group (DDP, FSDP2, DeviceMesh, ...) then runs on Chainmail. Works
under Chainmail's launcher, torchrun, mpirun and srun, and alone as the only rank. Importing this
package opens libchainmail.so; the operators torch.ops.chainmail.* are there afterwards.
"""

from chainmail import _library  # first: the rest needs the operators that it opens
from chainmail import _rendezvous
from chainmail._backend import (Failure, Options, failure, monitored_barrier, register,
                                set_timeout)
from chainmail._build import VERSION as __version__
from chainmail._hooks import IntegerWire, integer_hook, mean_hook

__all__ = ["Failure", "IntegerWire", "Options", "failure", "integer_hook", "mean_hook",
           "monitored_barrier", "set_timeout"]

register()
_rendezvous.install()
_library.end_callbacks_at_exit()
