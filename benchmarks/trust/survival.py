"""Stops, kills and hangs up what profd has around a script, in every order, and looks at what
becomes of the script.

    python benchmarks/run.py survival [--jobs N] [WORD ...]

Takes about a second a case and core; with words, only cases are tried that have all of them in
their names. Says as a JSON line on stderr what came of each. Writes its section of
``docs/measurements.md`` unless cases were selected; ends with 1 where a script was touched, or
anything was left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from common.measurements import write_section
from support.faultcases import Case, all_cases, play
from support.faultscenes import Scene
from support.pyspy.standin import StandIn


def try_out(case: Case) -> tuple[str, float]:
    """Return what was wrong with a case, empty where nothing was, and how many seconds it took."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="profd-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        py_spy = StandIn(Path(folder))
        os.environ.update(PROFD_HOME=str(home), PROFD_PY_SPY=os.fspath(py_spy.path))
        scene = Scene(home, Path(folder))
        try:
            play(scene, case)
        except AssertionError as error:
            return str(error) or repr(error), time.monotonic() - begun_s
        finally:
            scene.close()
            py_spy.end()
    return "", time.monotonic() - begun_s


def main() -> int:
    """Try all cases that the command line selects; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    cases = [case for case in all_cases() if all(word in str(case) for word in options.words)]
    begun_s = time.monotonic()
    failures = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for case, (failure, took_s) in zip(cases, pool.map(try_out, cases), strict=True):
            failures += bool(failure)
            said = {"case": str(case), "failure": failure[:500], "took_s": round(took_s, 1)}
            print(json.dumps(said), file=sys.stderr, flush=True)
    ways = Counter(case.way for case in cases)
    lines = [
        f"{len(cases) - failures} of {len(cases)} cases were sound "
        f"({', '.join(f'{count} of `{way}`' for way, count in ways.items())}), in "
        f"{time.monotonic() - begun_s:.0f} s:",
        "the script made its steps after each fault, its output was complete in the file, on the "
        "terminal and in the",
        "run, signals to the launcher reached it once, its exit code came through, and nothing "
        "of profd's was left.",
    ]
    print("\n".join(lines))
    if not options.words:
        write_section(
            "Faults in every order",
            "`benchmarks/trust/survival.py`: SIGSTOP, SIGKILL, SIGTERM and SIGHUP of launcher, session "
            "and dashboard, and a closed terminal: each alone, all ordered pairs, all orders of "
            "stops and kills of the three.",
            lines,
        )
    return 1 if failures else 0
