"""Becomes a command whose calls for reading another process fail, as by a strict seccomp profile: filtered.py CMD...

The filter is that of Docker's default profile on kernels before 4.8, for x86-64: seccomp(2) has its format.
"""

import ctypes
import os
import struct
import sys

PTRACE, PROCESS_VM_READV = 101, 310
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050000 | 1
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, MODE_FILTER = 38, 22, 2


def main():
    steps = [
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 2, 0, PTRACE),
        (JUMP_IF_EQUAL, 1, 0, PROCESS_VM_READV),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, FAIL_WITH_EPERM),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(SET_SECCOMP, MODE_FILTER, program, 0, 0) != 0:
        sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
