"""`profd export --to` and `profd fleet` from the command line: what they print, and what they say where they cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from support.folders import DOCS
from support.synthetic import write_run

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode
from profd.daemon.fleet.answers import Fleet

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path, capsys: Captured) -> str:
    url = str(tmp_path / "fleet")
    run = write_run(tmp_path / "a.profd")
    assert run_command_line(["export", str(run), "--format", "parquet", "--to", url]) == ExitCode.OK
    assert "rows of samples of 20261120-120000-cifar-3fa9@ada-desktop" in capsys.readouterr().err
    return url


def test_json_has_the_documented_fields_and_the_page_says_the_same(data: str, tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["fleet", data]) == ExitCode.OK
    told = capsys.readouterr().out
    assert told.startswith("1 run of 1 job on 1 node: 0.00556 rank hours, 0.00222 of them lost (40 %)")
    assert run_command_line(["fleet", data, "-o", str(tmp_path / "fleet.html")]) == ExitCode.OK
    for text in (told, (tmp_path / "fleet.html").read_text()):
        assert "Most is lost in data wait" in text
    capsys.readouterr()
    assert run_command_line(["fleet", data, "--json"]) == ExitCode.OK
    told = capsys.readouterr().out
    fleet = msgspec.json.decode(told, type=Fleet)
    assert (fleet.version, fleet.runs, fleet.jobs, fleet.nodes) == (1, 1, 1, 1)
    page = (DOCS / "fleet.md").read_text()
    assert [name for name in json.loads(told) if f"`{name}`" not in page] == []


def test_the_end_of_a_range_of_time_is_no_place(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "a.profd")
    words = ["export", str(run), "--format", "parquet", "--to", str(tmp_path / "fleet")]
    assert told_of([*words, "--rank", "0"], capsys)[0] == ExitCode.USAGE  # a data set has whole runs
    assert told_of([*words, "--from", "1"], capsys)[0] == ExitCode.USAGE
    words[-1] = "4"
    assert "-o FOLDER" in told_of(words, capsys)[1]
    assert told_of([*words, "-o", "tables"], capsys)[0] == ExitCode.OK
    assert {path.name for path in tmp_path.iterdir()} == {"a.profd", "tables"}


def told_of(words: list[str], capsys: Captured) -> tuple[int, str]:
    code = run_command_line(words)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("duckdb", ["fleet", "DATA"], "fleet"),
        ("distributed", ["fleet", "DATA", "--dask", "tcp://localhost:1"], "dask"),
        ("pyarrow", ["export", "RUN", "--format", "parquet", "--to", "NEW"], "fleet"),
        ("fsspec", ["export", "RUN", "--format", "parquet", "--to", "NEW"], "fleet"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra_and_nothing_is_written(
    data: str, tmp_path: Path, module: str, words: list[str], extra: str,
    capsys: Captured, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, module, None)
    meant = {"DATA": data, "RUN": str(tmp_path / "a.profd"), "NEW": str(tmp_path / "new")}
    code, said = told_of([meant.get(word, word) for word in words], capsys)
    assert code == ExitCode.MISSING_TOOL
    assert f"profd[{extra}]" in said
    assert not (tmp_path / "new").exists()


def test_a_place_without_a_data_set_and_a_url_that_is_none(tmp_path: Path, capsys: Captured) -> None:
    code, said = told_of(["fleet", str(tmp_path)], capsys)
    assert code == ExitCode.UNREADABLE_RUN
    assert "holds no data set" in said
    for place in ("nonsense://x", "/tmp/a[b]"):
        assert told_of(["fleet", place], capsys)[0] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"version": 2}', "of version 2"),
        ("{}", "is no manifest"),
        ("\xff", "is no manifest"),
        (
            '{"version":1,"run":"a","started_ns":1,"ended_ns":2,"files":'
            '[{"table":"samples","path":"samples/../../etc/x","rows":1,"size_bytes":1}]}',
            "lie elsewhere",
        ),
    ],
)
def test_manifests_that_lie(data: str, content: str, said: str, capsys: Captured) -> None:
    (Path(data) / "manifests" / "x.json").write_text(content, encoding="latin-1")
    code, told = told_of(["fleet", data], capsys)
    assert code == ExitCode.UNREADABLE_RUN
    assert said in told


def test_a_damaged_file_or_one_that_is_gone_and_a_time_without_runs_are_refused(data: str, capsys: Captured) -> None:
    assert told_of(["fleet", data, "--until", "2020-01-01"], capsys)[0] == ExitCode.USAGE
    next(Path(data).glob("samples/**/*.parquet")).unlink()
    code, said = told_of(["fleet", data], capsys)
    assert code == ExitCode.UNREADABLE_RUN
    assert "export its runs again" in said
    next(Path(data).glob("stacks/**/*.parquet")).write_bytes(b"PAR1 no more")
    assert told_of(["fleet", data], capsys)[0] == ExitCode.UNREADABLE_RUN
