"""The report as a file: whole, harmless, self-contained, and with the samples of its run."""

from __future__ import annotations

import base64
import gc
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import hostiletexts, synthetic
from support.pages import embedded
from support.present import there

from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.errors import OutputUnwritable
from profd.daemon.findings.catalog import shows_imports
from profd.daemon.render.buckets import TIME_UNIT_NS
from profd.daemon.render.report import (
    render_report,
    take_verdict,
    take_words,
    write_report,
)
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "run.profd")) as reader:
        yield reader


def path_of(payload: Any, stack: int) -> tuple[tuple[str, str, int], ...]:  # noqa: ANN401
    """Return the frames of a carried stack from the root to the leaf, as (function, file, line)."""
    frame, up = payload.stackFrame[stack], payload.stackUp[stack]
    function = payload.frameFunction[frame]
    file = payload.files[payload.functionFile[function]].path
    place = (payload.functionName[function], file, payload.frameLine[frame])
    return (*(path_of(payload, stack - up) if up else ()), place)


def test_page_carries_every_sample_of_its_run_with_the_frames_and_the_phase_of_its_stack(
    reader: RunReader,
) -> None:
    payload = embedded(render_report(reader))
    main = [
        thread
        for thread in payload.threads
        if thread.main and payload.processes[thread.process].role == "main"
    ]
    everything = take_profile(reader, Selection())
    assert (
        sum(sum(thread.samples) for thread in main)
        == take_profile(reader, MAIN_THREADS).total_samples
        == 2_000
    )
    assert sum(sum(thread.samples) for thread in payload.threads) == everything.total_samples
    assert (
        sum(sum(thread.times_100us) for thread in payload.threads)
        == everything.total_ns / TIME_UNIT_NS
    )
    main = payload.threads[0]
    carried: Counter[str] = Counter()
    for stack, samples in zip(main.stacks, main.samples, strict=True):
        carried[payload.phases[payload.stackPhase[stack]].name] += samples
    assert {name: samples / 2_000 for name, samples in carried.items()} == synthetic.PHASE_SHARES
    by_frames: Counter[tuple[tuple[str, str, int], ...]] = Counter()
    for thread in payload.threads:
        for stack, samples in zip(thread.stacks, thread.samples, strict=True):
            by_frames[path_of(payload, stack)] += samples
    assert by_frames == {
        tuple(
            (frame.function, frame.file, frame.line) for frame in reader.frames_of(stack)
        ): samples
        for stack, samples in everything.samples.items()
    }


@pytest.mark.parametrize("enabled", [True, False])
def test_cycles_are_looked_for_afterwards_as_before(reader: RunReader, enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        render_report(reader)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_page_loads_nothing_and_runs_only_its_own_script(reader: RunReader) -> None:
    page = render_report(reader)
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", page)
    policy = there(re.search(r'Content-Security-Policy" content="([^"]*)"', page))[1]
    script = there(re.search(r"<script>(.*)</script>", page, re.DOTALL))[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    with RunReader(hostiletexts.write_run(tmp_path / "run.profd")) as reader:
        page = render_report(reader)
    assert "<img" not in page
    assert page.count("<script") == 2
    assert not set(page) & set("\u202e\u2066\u2028\x1b\x00")
    assert "&lt;img src=x" in page
    assert "\\u202egnol" in page
    assert hostiletexts.WIDE in page


def test_file_is_for_sharing_as_the_umask_has_it_or_why_not_is_said(
    reader: RunReader, tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        write_report(reader, tmp_path / "report.html")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o640
    for place in (".", "missing/report.html"):
        with pytest.raises(OutputUnwritable, match=r"cannot write .* -o FILE"):
            write_report(reader, tmp_path / place)


def test_live_run_is_reported_as_of_one_moment_with_what_came_since_it_was_opened(
    tmp_path: Path,
) -> None:
    with (
        synthetic.live_run(tmp_path / "run.profd", seconds=1) as run,
        RunReader(run.path) as reader,
    ):
        run.advance()
        write_report(reader, tmp_path / "report.html")
        main = embedded((tmp_path / "report.html").read_text()).threads[0]
        assert sum(main.samples) == 2 * synthetic.RATE_HZ
        run.advance()  # after the reader has read its tables
        with reader.one_moment():
            run.advance()
            page = render_report(reader)
    assert "still running" in page
    main = embedded(page).threads[0]
    assert sum(main.samples) == 3 * synthetic.RATE_HZ


def test_title_and_verdict_say_what_where_and_how_it_went_with_a_line_of_the_users_code(
    reader: RunReader,
) -> None:
    summary = summarize(reader)
    words = take_words(reader, summary, bucket_ms=10)
    assert words["title"] == "train.py"
    assert words["command"] == "python train.py --epochs 2"
    assert words["subtitle"][0] == "ada-desktop"
    assert words["subtitle"][2:] == ["20.0 s", "ended with 0"]
    facts = {fact.name: fact.value for fact in words["facts"]}
    assert (facts["samples"], facts["coverage"], facts["profd's cost"]) == (
        "2,000",
        "100.0 %",
        "4.1 % of a core",
    )
    verdict = take_verdict(summary)
    line = verdict["line"]
    assert verdict["lead"] == "40 % of the time the main thread waits for data"
    assert (line.module_path, line.line, line.source) == (
        "train.py",
        58,
        "for images, labels in loader:",
    )
    assert verdict["rest"] == "Next: forward 20 %, backward 20 %, optimizer 10 %"


def test_imports_are_shown_only_if_a_slow_start_is_a_finding(reader: RunReader) -> None:
    findings = summarize(reader).findings
    assert findings
    assert not shows_imports(findings)
    assert shows_imports([*findings, msgspec.structs.replace(findings[0], rule="slow-start")])


@pytest.mark.parametrize(
    ("ended", "changes", "said"),
    [
        ({"exit_code": 3}, {}, "the target ended with 3"),
        ({"exit_code": None, "exit_signal": 9}, {}, "the target was ended by SIGKILL"),
        ({"exit_code": None, "exit_signal": 2}, {}, "stopped by Ctrl-C (SIGINT)"),
        ({"exit_code": None}, {}, "ended"),
        ({"live": True}, {}, "still running"),
        (
            {},
            {"state": "interrupted", "why_ended": None},
            "recording broke off: profd itself was ended",
        ),
        ({"exit_code": None}, {"why_ended": "stopped"}, "recording stopped"),
        ({"exit_code": None}, {"why_ended": "duration"}, "recording ended"),
        ({}, {"why_ended": "failed"}, "recording failed"),
    ],
)
def test_the_page_says_how_the_run_ended(
    tmp_path: Path, ended: dict[str, Any], changes: dict[str, str | None], said: str
) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=0, **ended)) as reader:
        summary = msgspec.structs.replace(summarize(reader), **changes)
        assert take_words(reader, summary, 100)["subtitle"][-1] == said
        assert take_verdict(summary)["lead"].startswith("No sample of a main thread was taken")
