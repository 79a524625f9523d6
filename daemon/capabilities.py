"""Gives up the rights of root while its user stays: what reads files of others and shows them needs none of these.

``python -m profd.daemon.capabilities PROGRAM [WORD ...]`` becomes a program without them.
"""

from __future__ import annotations

import ctypes
import os
import sys

_SET_NO_NEW_PRIVILEGES = 38
_VERSION_3 = 0x20080522


def drop() -> None:
    """Give up all capabilities, for good: no program that is executed later gets any back.

    Of no effect on who is not root.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")


if __name__ == "__main__":
    drop()
    os.execv(sys.argv[1], sys.argv[1:])
