"""Which programs are recorded, how they are run, and how their diaries are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from support.folders import BENCHMARKS, PROGRAMS, TARGET
from support.recordinglines import Diary

from recordings import diaries, foreign
from recordings.diaries import Said

Read = Callable[[Path, Sequence[Said]], Diary]
SECONDS = 18.0
# Loops that wait more than they compute: what is read of them are counters, so that few samples are enough.
STEP_RATE_HZ = 10
STEP_SECONDS = 30.0
HANG_AFTER_S = 30.0


class Program(NamedTuple):
    """A program to record.

    ``words`` is its command after the interpreter; DIARY stands for the file of its diary, STARTED for the time of its
    start, FOLDER for a folder of its own. It is recorded from when it says ``ready``, if it ever does, else from its
    start, for ``seconds``; None: to its end. ``python`` is the version of its interpreter, "" that of this project.
    """

    words: tuple[str, ...]
    read: Read
    seconds: float | None = SECONDS
    rate_hz: int = 100
    is_awaited: bool = True
    python: str = ""
    prepare: Callable[[Path], Path] | None = None
    """Makes ready what it needs in a folder, and returns the folder to run it in."""
    may_hang: bool = False
    """Whether looks for a hang are recorded, too."""


def known(name: str, python: str = "") -> Program:
    """Return a program of ``benchmarks/truth/known``."""
    words = (str(BENCHMARKS / "truth" / "known" / f"{name}.py"), "DIARY")
    return Program(words, lambda file, _: diaries.of_known(name, file), python=python)


def stepping(name: str, rate_hz: int = STEP_RATE_HZ) -> Program:
    """Return a program of ``tests/programs/steploops``."""
    words = (str(PROGRAMS / "steploops" / f"{name}.py"), "DIARY")
    return Program(
        words, lambda file, _: diaries.of_steps(file), seconds=STEP_SECONDS, rate_hz=rate_hz
    )


def timed(name: str, *options: str) -> Program:
    """Return a training of ``benchmarks/truth/frameworks`` that times its own phases."""
    words = (
        str(BENCHMARKS / "truth" / "phasetruth.py"),
        "DIARY",
        "STARTED",
        str(BENCHMARKS / "truth" / "frameworks" / name),
        *options,
    )
    return Program(words, lambda file, _: diaries.of_phases(file), seconds=None, is_awaited=False)


def planted(name: str, rule: str, *options: str, seconds: int = 16) -> Program:
    """Return a script of ``target/gallery`` with a cause that a rule names; "" where it has none."""
    words = (str(TARGET / "gallery" / f"{name}.py"), "--seconds", str(seconds), *options)
    return Program(words, lambda *_: Diary(planted=rule), seconds=None, is_awaited=False)


def kind(
    name: str,
    rule: str,
    *options: str,
    seconds: float = SECONDS,
    rate_hz: int = 50,
) -> Program:
    """Return a program of ``benchmarks/findings/corpus`` with a cause that a rule names; "" where it has none."""
    program = BENCHMARKS / "findings" / "corpus" / "programs" / f"{name}.py"
    words = (str(program), "DIARY", *options)
    return Program(words, lambda file, _: diaries.of_corpus(file, rule), seconds, rate_hz)


def ranks(late: int | None, *options: str) -> Program:
    """Return two ranks of ``target/ddp_mlp.py``."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = (*torchrun, str(TARGET / "ddp_mlp.py"), "--seconds", "15", *options)
    rule = "" if late is None else "straggler"
    return Program(
        words, lambda *_: Diary(planted=rule, late_rank=late), seconds=None, is_awaited=False
    )


def log(pattern: str, steps_an_epoch: int = 1) -> Read:
    """Return what reads a log of steps."""
    return lambda _, said: diaries.of_log(said, pattern, steps_an_epoch)


def hanging(name: str, *options: str) -> Program:
    """Return a program of ``tests/programs/hangs`` that hangs, or its mended twin."""
    words = (str(PROGRAMS / "hangs" / f"{name}.py"), *options)
    return Program(words, nothing, seconds=HANG_AFTER_S + 12, rate_hz=STEP_RATE_HZ, may_hang=True)


def nothing(*_: object) -> Diary:
    """Return the diary of a program that keeps none."""
    return Diary()


KINDS = {
    "short_folds": "input-bound-starting",
    "keras_greedy_moves": "inference-share",
    "polyak_by_hand": "overhead",
    "bucket_sampler": "input-bound-sampler",
    "flag_file": "overhead",
    "studio_thread": "overhead",
    "weights_as_text": "overhead",
    "frozen_critic": "forward-without-gradients",
    "lit_keeper": "overhead",
    "board_redraws": "interpreter-lock",
    "night_shift": "interpreter-lock",
    "full_cores": "input-bound-saturated",
    "percnn_retained_graph": "graphs-again",
    "runoff_debug_strings": "overhead",
}
"""The programs of ``benchmarks/findings/corpus`` that are recorded as the others, by the rule that names their cause.

That with Keras needs keras and optree.
"""

HANGS = {
    "joined_writer": "child process",
    "stale_lock": "polling",
    "ended_helper": "queue",
    "missing_party": "lock",
    "lost_semaphore": "lock",
}
"""The programs of ``tests/programs/hangs`` that are recorded, by what holds them up."""

PROGRAMS_TO_RECORD: dict[str, Program] = {
    "flat": known("flat"),
    "generators": known("generators"),
    "slow": known("slow"),
    "threads": known("threads"),
    "coroutines": known("coroutines"),
    "recursion": known("recursion"),
    "restless": known("reporting"),
    "modules": known("modules"),
    "flat-3.8": known("flat", "3.8"),
    "generators-3.9": known("generators", "3.9"),
    "threads-3.10": known("threads", "3.10"),
    "coroutines-3.12": known("coroutines", "3.12"),
    "recursion-3.13": known("recursion", "3.13"),
    "turns": Program((str(PROGRAMS / "known_phases.py"), "DIARY"), lambda file, _: diaries.of_turns(file)),
    **{f"kind-{name}": kind(name, rule) for name, rule in KINDS.items()},
    **{f"kind-{name}-mended": kind(name, "", "--mended") for name in KINDS},
    "kind-caption_records": kind("caption_records", "copied-pages", seconds=75.0, rate_hz=10),
    "kind-caption_records-mended": kind("caption_records", "", "--mended", seconds=75.0, rate_hz=10),
    "kind-lgbm_tides": kind("lgbm_tides", ""),
    **{f"hang-{name}": hanging(name) for name in HANGS},
    **{f"hang-{name}-mended": hanging(name, "--mended") for name in HANGS},
    "steps-accumulating": stepping("accumulating_loop"),
    "steps-asyncio": stepping("asyncio_loop", 100),
    "steps-enumerate": stepping("enumerate_loop"),
    "steps-lightning": stepping("lightning_loop"),
    "steps-module": stepping("module_loop", 100),
    "steps-nested": stepping("nested_loops", 100),
    "steps-none": stepping("no_loop"),
    "steps-outer": stepping("outer_counter", 100),
    "steps-range": stepping("range_loop"),
    "steps-restarting": stepping("restarting_loop", 100),
    "steps-retries": stepping("retries"),
    "steps-tqdm": stepping("tqdm_loop"),
    "steps-trainer": stepping("trainer_loop"),
    "steps-while": stepping("while_loop"),
    "training": timed("convolutional.py", "--epochs", "4"),
    "training-workers": timed("convolutional.py", "--epochs", "4", "--workers", "2"),
    "training-lstm": timed("language.py", "lstm", "--steps", "150"),
    "training-transformer": timed("language.py", "transformer", "--steps", "120"),
    "loader": Program((str(PROGRAMS / "loader.py"),), nothing),
    "ranks-healthy": ranks(None),
    "ranks-slow-data": ranks(1, "--slow", "data", "--slow-rank", "1"),
    "ranks-slow-disk": ranks(0, "--slow", "disk", "--slow-rank", "0"),
    "planted-in-process": planted("load_in_process", "input-bound-in-process"),
    "planted-values": planted("values_each_step", "synchronization"),
    "planted-store": planted("slow_store", "input-bound-saturated"),
    "planted-loop": planted("python_loop", "hot-function"),
    "planted-none": planted("values_each_step", "", "--fixed", seconds=24),
    "children": Program((str(BENCHMARKS / "common" / "loads" / "churning.py"), "6", "12"), nothing, seconds=15.0),
    "leaking": Program((str(PROGRAMS / "memory" / "leaking.py"),), nothing, seconds=58.0, rate_hz=5),
    "nanogpt": Program(
        ("train.py", *foreign.NANOGPT_OPTIONS), log(r"^iter (\d+):"), 24.0, is_awaited=False, prepare=foreign.nanogpt,
    ),
    "word-language-model": Program(
        ("main.py", *foreign.WORDS_OPTIONS), log(foreign.WORDS_LINE, foreign.WORDS_STEPS), 22.0, is_awaited=False,
        prepare=foreign.word_language_model,
    ),
    "mnist": Program(
        ("main.py", *foreign.MNIST_OPTIONS), log(foreign.MNIST_LINE, foreign.MNIST_STEPS), 22.0, is_awaited=False,
        prepare=foreign.mnist,
    ),
}  # fmt: skip
"""By the name of their recording."""
