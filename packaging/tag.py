# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The platform tag that auditwheel proves for a wheel: the oldest system on which it works.

    python packaging/tag.py WHEEL

What torch, CUDA or Open MPI bring is not for us to carry, and auditwheel is told so.
"""

import pathlib
import sys

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.wheel_abi import analyze_wheel_abi

BROUGHT_BY_OTHERS = frozenset(f"{name}*" for name in (
    "libtorch", "libc10", "libcud", "libnccl", "libmpi", "libpmix", "libopen-"))


def proved_by(wheel):
    """Such as "manylinux_2_36_x86_64"; throws where the machine code needs what no such system has."""
    found = analyze_wheel_abi(Libc.GLIBC, Architecture.detect(), pathlib.Path(wheel), BROUGHT_BY_OTHERS,
                              disable_isa_ext_check=False, allow_graft=False)
    foreign = found.external_refs[found.overall_policy.name].libs
    if foreign:
        raise SystemExit(f"{wheel} needs libraries that it does not hold: {', '.join(sorted(foreign))}")
    return found.overall_policy.name


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(proved_by(sys.argv[1]))
