"""Runs training scripts one after the other in one process, as importing torch and torchvision takes longest of all.

    targets.py FOLDER RUNS    RUNS is JSON: a list of runs, each the name of a script and its arguments

Random images are 10 for training and 2 for evaluation, in place of 50,000 and 10,000. Prints JSON: for each run what it
wrote to stdout and to stderr, and the error that ended it.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys

from torchvision import datasets

WHOLE = datasets.FakeData


def fewer(size: int, *rest: object) -> object:
    return WHOLE(size // 5000, *rest)


def run(folder: str, name: str, *arguments: str) -> dict[str, str]:
    out, err, error = io.StringIO(), io.StringIO(), ""
    sys.argv = [name, *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
        except (Exception, SystemExit) as raised:  # noqa: BLE001  whatever ends a script is what the test asks for
            error = str(raised)
    return {"stdout": out.getvalue(), "stderr": err.getvalue(), "error": error}


datasets.FakeData = fewer
folder, runs = sys.argv[1:]
print(json.dumps([run(folder, *words) for words in json.loads(runs)]))
