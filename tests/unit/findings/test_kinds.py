"""The table of kinds of calls, that of the user ahead of it, and the names of functions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.findingruns import (
    CALL,
    ENCODE,
    LOOP,
    OWN,
    QUEUE_GET,
    SNAPSHOT,
    STANDARD,
    Case,
    step,
    write_case,
)
from support.synthetic import LIBRARY
from support.training_stacks import DATA

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.errors import UsageError
from profd.daemon.findings.kinds import BUILT_IN, load_kinds, named_rest, spoken
from profd.daemon.findings.overhead import overhead
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

MOST_WORDS = 10  # with the other words of a sentence they are 30 at most


def test_what_other_and_waiting_consist_of_is_named_by_kind_or_function(tmp_path: Path) -> None:
    wait = (*SNAPSHOT, QUEUE_GET)
    hook = (*CALL, Frame("_optimizer_post_hook", LIBRARY + "torch/profiler/__init__.py", 54))
    script, own_main = Frame("<module>", OWN[-1].file, 9), Frame("main", OWN[-1].file, 5)
    fit = Frame("Learner.fit", LIBRARY + "fastai/learner.py", 9)
    window = (
        *hook,
        Frame("KinetoStepTracker.increment_step", LIBRARY + "torch/autograd/profiler.py", 1287),
    )
    path = write_case(
        tmp_path / "a.profd",
        step(
            (ENCODE, 100),
            (OWN, 50),
            (window, 40),
            (wait, 25),
            ((script, fit), 10),
            ((script, own_main, fit), 5),
            ((*LOOP,), 2),
        ),
    )
    with RunReader(path) as reader:
        phases = PhaseIndex(reader)
        named = named_rest(reader, take_profile(reader, MAIN_THREADS, phases), phases)
    assert {phase: list(parts) for phase, parts in named.items()} == {
        "other": ["serialization", "relabel", "taking windows of torch.profiler", "fastai"],
        "waiting": ["waiting for another thread or process"],
    }
    assert named["other"] == pytest.approx(
        {
            "serialization": 0.2,
            "relabel": 0.1,
            "taking windows of torch.profiler": 0.08,
            "fastai": 0.03,
        },
        abs=0.005,
    )


def test_a_lambda_has_the_name_of_its_function(case: Case) -> None:
    score = (*CALL, Frame("rank.<locals>.<lambda>", DATA, 73))
    assert "a line of rank takes 30 % of the time (augment.py:73," in case.title(
        overhead, step((score, 150))
    )
    nested = ["f.<locals>.<lambda>.<locals>.<genexpr>", "f.<locals>.<listcomp>.<listcomp>"]
    assert [spoken(name) for name in ("f.<locals>.g", *nested, "<lambda>", "<module>")] == [
        "f.<locals>.g", "f", "f", "", "the script"
    ]  # fmt: skip


def test_a_profiler_of_the_script_is_named_and_the_marks_that_torch_sets_for_one_are_none(
    case: Case,
) -> None:
    def in_torch(function: str, line: int) -> tuple[Frame, ...]:
        return (*CALL, Frame(function, LIBRARY + "torch/autograd/profiler.py", line))

    assert case.title(overhead, step((in_torch("profile.__exit__", 403), 150))).startswith(
        "overhead: a profiler of torch.autograd in the script takes 30 % of the time"
    )
    marks = (
        *CALL,
        Frame("_BaseDataLoaderIter.__next__", LIBRARY + "torch/utils/data/dataloader.py", 721),
    )
    for mark in ("record_function.__exit__", "__exit__"):  # as named up to Python 3.10
        stack = (*marks, Frame(mark, LIBRARY + "torch/autograd/profiler.py", 954))
        found = case.found(overhead, step((stack, 150)))
        assert found is None or "profiler" not in found.title


def test_kinds_of_the_user_come_first_and_a_wrong_table_of_theirs_is_refused_with_its_path(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFD_HOME", str(tmp_path))
    table = tmp_path / "overhead.toml"
    table.write_text('[[kind]]\nwhat = "our store"\n')
    with pytest.raises(UsageError, match=r"overhead.toml is no table of \[\[kind\]\].*instead"):
        load_kinds()
    table.write_text(
        table.read_text() + 'instead = "asking once"\nremedy = "Ask once."\nmodule = ["json/*"]\n'
    )
    found = case.finding(overhead, step((ENCODE, 150)))
    assert found.title.startswith(
        "overhead: our store takes 30 % of the time (augment.py:12, from train.py:66): asking once speeds"
    )
    assert found.remedy == "Ask once."


def test_each_kind_says_what_helps_in_programs_without_a_training_too() -> None:
    for kind in load_kinds():
        assert len(f"{kind.what} {kind.instead}".split()) <= MOST_WORDS
        if not kind.anywhere:
            assert not re.search(r"\b(training|steps?)\b", f"{kind.instead} {kind.remedy}")
        assert kind.remedy.endswith(".")
        assert not kind.instead.endswith(".")
    assert BUILT_IN.is_file()


def test_a_kind_is_the_same_by_its_call_and_by_its_line(case: Case) -> None:
    by_line = (*CALL, case.line("snapshot", 74, "pickle.dumps(state)"))
    title = case.title(overhead, step((ENCODE, 75), (by_line, 75)))
    assert title.startswith("overhead: serialization takes 30 % of the time (train.py:66)")
    names = [kind.what for kind in load_kinds()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("module", "what"),
    [
        ("psutil/_pslinux.py", "reading the machine's state"),
        ("beartype/_check.py", "checking types and values"),
        ("sklearn/metrics/_ranking.py", "computing scores"),
        ("joblib/numpy_pickle.py", "serialization"),
    ],
)
def test_calls_into_a_library_have_its_kind(case: Case, module: str, what: str) -> None:
    stack = (*SNAPSHOT, Frame("call", LIBRARY + module, 9))
    assert case.title(overhead, step((stack, 150))).startswith(f"overhead: {what} takes 30 %")


@pytest.mark.parametrize(
    ("caller", "waits_in", "what"),
    [
        (STANDARD + "subprocess.py", "selectors.py", "a child process"),
        (STANDARD + "asyncio/base.py", "selectors.py", "waiting for another thread or process"),
        (STANDARD + "queue.py", "threading.py", "waiting for another thread or process"),
        (LIBRARY + "grpc/_channel.py", "threading.py", "sending requests over the network"),
    ],
)
def test_a_wait_is_of_the_kind_of_the_library_that_waits(
    case: Case, caller: str, waits_in: str, what: str
) -> None:
    calls = (Frame("call", caller, 9), Frame("wait", STANDARD + waits_in, 9))
    found = case.title(overhead, step(((*SNAPSHOT, *calls), 150)))
    assert found.startswith(f"overhead: {what} takes 30 %")


@pytest.mark.parametrize(
    ("function", "file", "what"),
    [
        ("Random.sample", STANDARD + "random.py", "picking from Python objects at random"),
        ("Random.uniform", STANDARD + "random.py", "drawing random numbers in Python"),
        ("ZipFile._RealGetContents", STANDARD + "zipfile.py", "opening archives or databases anew"),
        ("ZipExtFile.read", STANDARD + "zipfile.py", "compression"),
        ("File.__init__", LIBRARY + "h5py/_hl/files.py", "opening archives or databases anew"),
        ("Dataset.__getitem__", LIBRARY + "h5py/_hl/dataset.py", "serialization"),
        ("_array2string", LIBRARY + "numpy/_core/arrayprint.py", "turning tensors or arrays into text"),
        ("Module.named_modules", LIBRARY + "torch/nn/modules/module.py", "collecting the model's parts"),
    ],
)  # fmt: skip
def test_functions_of_one_module_may_be_of_several_kinds(
    case: Case, function: str, file: str, what: str
) -> None:
    stack = (*SNAPSHOT, Frame(function, file, 9))
    assert case.title(overhead, step((stack, 150))).startswith(f"overhead: {what} takes 30 %")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("place = self.names.index(name)", "going through a list"),
        ("oldest = self.waiting.pop(0)", "going through a list"),
        ("newest = self.waiting.pop()", "a line of take"),
        ("rows = rng.choice(count, 64, p=self.weights)", "drawing by weights"),
        ("rows = rng.choice(count, 64)", "a line of take"),
        ("with h5py.File(self.path) as file:", "opening archives or databases anew"),
        ("with zipfile.ZipFile(self.path) as file:", "opening archives or databases anew"),
    ],
)
def test_a_call_into_c_has_its_kind_by_its_line(case: Case, text: str, what: str) -> None:
    stack = (*CALL, case.line("take", 77, text))
    assert case.title(overhead, step((stack, 150))).startswith(f"overhead: {what} takes 30 %")


def test_a_call_below_a_line_says_more_than_its_text(case: Case) -> None:
    text = "newest = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)"
    line = (*CALL, case.line("newest", 76, text))
    stat = (
        *line,
        Frame("newest.<locals>.<lambda>", DATA, 76),
        Frame("Path.stat", STANDARD + "pathlib.py", 1013),
    )
    assert "overhead: reading and writing files takes 30 %" in case.title(
        overhead, step((stat, 150))
    )
    assert "overhead: sorting in Python takes 30 %" in case.title(overhead, step((line, 150)))
