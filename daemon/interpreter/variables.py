"""The environment of a process as it is now: with what the process itself has set since it was started.

/proc/PID/environ has what a process was started with. Ray Train and scripts that spawn their ranks set RANK inside of
the process; setenv(3) keeps the list at the C library's ``environ``, which is read here, as the loop's counter is.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from profd.daemon import processes
from profd.daemon.interpreter.memory import Memory, Unreadable, exported

_MOST_VARIABLES = 4096
_LENGTH = 256
_PAGE = 4096
_LIBRARY = re.compile(r"libc(-[\d.]+)?\.so|ld-musl")


def variables_now(pid: int, allowed: frozenset[str]) -> dict[str, str]:
    """Return the variables in ``allowed``, cut at 256 bytes; none where the memory cannot be read."""
    try:
        memory = Memory(pid)
    except Unreadable:
        return {}
    try:
        return _variables(memory, pid, allowed)
    except Unreadable:  # it moved the list meanwhile, or ends
        return {}
    finally:
        memory.close()


def _variables(memory: Memory, pid: int, allowed: frozenset[str]) -> dict[str, str]:
    executable = processes.link(pid, "exe")
    mapped = re.findall(r"([0-9a-f]+)-[0-9a-f]+ \S+ 0+ \S+ \d+ +(/.*)", processes.maps(pid))
    # The executable's own copy first: where there is one, the library uses it too (R_X86_64_COPY).
    places = [int(start, 16) for start, path in mapped if path == executable]
    places += [int(start, 16) for start, path in mapped if _LIBRARY.match(PurePath(path).name)]
    address = next((found["environ"] for start in places if (found := exported(memory, start, ("environ",)))), None)
    if address is None:
        return {}
    table, values = memory.word(address), dict[str, str]()
    for at in range(_MOST_VARIABLES):
        pointer = memory.word(table + 8 * at)
        if not pointer:
            break
        data = memory.read(pointer, min(_LENGTH, _PAGE - pointer % _PAGE))
        name, _, value = data.split(b"\0")[0].decode(errors="replace").partition("=")
        if name in allowed:
            values[name] = value
    return values
