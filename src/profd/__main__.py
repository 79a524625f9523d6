"""Starts every program of profd: ``python -m profd`` is the command line, ``__main__.py -m MODULE``
another.

Python reads much that is set for the script's Python: folders of modules, options, warnings. So
nothing that may be another's is imported before this process has become an isolated one. The shell
script `profd` starts it as one.
"""

import gc
import os
import sys

gc.set_threshold(10_000)  # by the default of 700 a tenth of the time of all imports is collections
_INTERRUPTED = 130  # as a shell reports what Ctrl-C ended


def main() -> None:
    """Run the command line of profd; does not return."""
    if not sys.flags.isolated:
        _start_anew()
    try:
        from profd.daemon import program

        program.take_over()
        from profd.cli.main import main
    except KeyboardInterrupt:  # nothing is started yet
        sys.exit(_INTERRUPTED)
    main()


def _start_anew() -> None:
    """Become an isolated Python, with the environment as it was before Python set a locale in it
    (PEP 538).
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0")]
        environment = {name: value for name, _, value in entries if name}
    except OSError:
        environment = dict(os.environb)
    words = sys.argv[1:] if sys.argv[1:2] == ["-m"] else ["-m", "profd", *sys.argv[1:]]
    os.execve(sys.executable, [sys.executable, "-I", __file__, *words], environment)


def _find_package() -> None:
    """Make profd importable from the folder of this very file, wherever it was installed."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if folder in sys.path:
        return
    sys.path.insert(0, folder)
    # its modules come from that folder from now on; all else only if it is nowhere else
    import profd

    sys.path.remove(folder)
    import site

    site.addsitedir(folder)


if __name__ == "__main__":
    if not sys.flags.isolated:
        _start_anew()
    _find_package()
    if sys.argv[1:2] == ["-m"]:
        del sys.argv[1]
        name = sys.argv.pop(1)
        if name != "profd":
            import runpy

            runpy.run_module(name, run_name="__main__", alter_sys=True)
            sys.exit()
    main()
