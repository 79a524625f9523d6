"""`profd demo`: launch a bundled training script and profile it, as `profd run` does."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path

import click

from profd.cli.options import RecordingOptions, headless_option, steps_option
from profd.cli.run import narrate, run_profiled, sum_up
from profd.daemon.errors import MissingTool, UsageError
from profd.daemon.installation import install_extra
from profd.daemon.metrics.exporter import Exporter

# Each takes a minute at the most on the two cores of a laptop.
TARGET_ARGUMENTS = {
    "cifar_resnet18": ("--steps", "300"),
    "simple_net": ("--steps", "50000"),
    "digits": ("--steps", "400"),
}
WITHOUT_TORCH = "digits"
_NEEDED = ("torch", "torchvision", "tqdm")


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME] [-- ARGS...]")
@steps_option
@headless_option
def command(words: tuple[str, ...], steps: bool, headless: bool) -> int:
    """Run the bundled training script NAME and profile it.

    NAME is cifar_resnet18, simple_net, or digits, which needs no torch. The default is
    cifar_resnet18, and digits if torch is not installed beside profd.

    It takes about a minute. ARGS are given to the script behind those that make it so short: `profd
    demo -- --steps 5000` trains longer. On a terminal the dashboard opens. At the end comes a
    summary, and the path of the report.
    """
    missing = [module for module in _NEEDED if importlib.util.find_spec(module) is None]
    name, arguments = split_words(words, WITHOUT_TORCH if missing else "cifar_resnet18")
    if missing and name != WITHOUT_TORCH:
        what = f"the demo needs {', '.join(missing)}, not installed beside profd"
        raise MissingTool(what, install_extra("demo"))
    script = (sys.executable, str(target_path(name)), *TARGET_ARGUMENTS[name], *arguments)
    options = RecordingOptions(name=name, steps=steps).session(script, "launched")
    narrate(f"profd: training {name}" + ("" if arguments else ", for about a minute on a laptop"))
    farewell = partial(sum_up, options.run_file, options.run_file.with_suffix(".html"))
    exporter = Exporter(None, None, narrate)
    return run_profiled(options, exporter, {}, headless=headless, farewell=farewell)


def split_words(words: tuple[str, ...], default: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of the target, which may be the ``default``, and its arguments.

    Raises UsageError if there is no such target.
    """
    if not words or words[0].startswith("-"):
        return default, words
    if words[0] not in TARGET_ARGUMENTS:
        raise UsageError(
            f"there is no demo {words[0]}", f"it is one of: {', '.join(TARGET_ARGUMENTS)}"
        )
    return words[0], words[1:]


def target_path(name: str) -> Path:
    import importlib.resources  # imports all of tempfile

    return Path(str(importlib.resources.files("profd").joinpath("target", f"{name}.py"))).resolve()
