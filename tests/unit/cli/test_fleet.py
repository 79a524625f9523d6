"""`profd export --to` and `profd fleet` from the command line: what they print, and what they say
where they cannot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from support.commandline import CommandLine
from support.folders import DOCS
from support.synthetic import main_process, write_records, write_run

from profd.daemon.errors import ExitCode
from profd.daemon.fleet.answers import Fleet
from profd.daemon.installation import install_extra


@pytest.fixture
def data(tmp_path: Path, profd: CommandLine) -> str:
    url = str(tmp_path / "fleet")
    profd("export", write_run(tmp_path / "a.profd"), "--format", "parquet", "--to", url)
    assert "rows of samples of 20261120-120000-cifar-3fa9@ada-desktop" in profd.err
    return url


def test_json_has_the_documented_fields_and_the_page_says_the_same(
    data: str, tmp_path: Path, profd: CommandLine
) -> None:
    printed = profd("fleet", data)
    assert printed.startswith(
        "1 run of 1 job on 1 node: 0.00556 rank hours, 0.00222 of them lost (40 %)"
    )
    profd("fleet", data, "-o", tmp_path / "fleet.html")
    for text in (printed, (tmp_path / "fleet.html").read_text()):
        assert "Most is lost in data wait" in text
    answer = profd("fleet", data, "--json")
    fleet = msgspec.json.decode(answer, type=Fleet)
    assert (fleet.version, fleet.runs, fleet.jobs, fleet.nodes) == (1, 1, 1, 1)
    page = (DOCS / "fleet.md").read_text()
    assert [name for name in json.loads(answer) if f"`{name}`" not in page] == []


def test_the_end_of_a_range_of_time_is_no_place(
    tmp_path: Path, profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["export", write_run(tmp_path / "a.profd"), "--format", "parquet", "--to"]
    for more in (("--rank", 0), ("--from", 1)):  # a data set has whole runs
        profd(*words, tmp_path / "fleet", *more, code=ExitCode.USAGE)
    assert "-o FOLDER" in profd(*words, 4, code=ExitCode.USAGE)
    profd(*words, 4, "-o", "tables")
    assert {path.name for path in tmp_path.iterdir()} == {"a.profd", "tables"}


def test_runs_without_samples_have_a_code_of_their_own(tmp_path: Path, profd: CommandLine) -> None:
    empty, url = write_records(tmp_path / "empty.profd", [main_process()]), tmp_path / "fleet"
    profd("export", empty, "--format", "parquet", "--to", url, code=ExitCode.NO_SAMPLES)
    assert "no samples were taken" in profd.err
    profd("fleet", url, code=ExitCode.NO_SAMPLES)
    assert profd.err == "profd: no samples were taken in any of the runs\n"


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("duckdb", ["fleet", "DATA"], "fleet"),
        ("pyarrow", ["export", "RUN", "--format", "parquet", "--to", "NEW"], "fleet"),
        ("fsspec", ["export", "RUN", "--format", "parquet", "--to", "NEW"], "fleet"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra_and_nothing_is_written(
    data: str, tmp_path: Path, module: str, words: list[str], extra: str,
    profd: CommandLine, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, module, None)
    meant = {"DATA": data, "RUN": str(tmp_path / "a.profd"), "NEW": str(tmp_path / "new")}
    assert install_extra(extra) in profd(
        *(meant.get(word, word) for word in words), code=ExitCode.MISSING_TOOL
    )
    assert not (tmp_path / "new").exists()


def test_a_place_without_a_data_set_and_a_url_that_is_none(
    tmp_path: Path, profd: CommandLine
) -> None:
    assert "holds no data set" in profd("fleet", tmp_path, code=ExitCode.UNREADABLE_RUN)
    for place in ("nonsense://x", "/tmp/a[b]"):
        profd("fleet", place, code=ExitCode.USAGE)


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
def test_manifests_that_lie(data: str, content: str, said: str, profd: CommandLine) -> None:
    (Path(data) / "manifests" / "x.json").write_text(content, encoding="latin-1")
    assert said in profd("fleet", data, code=ExitCode.UNREADABLE_RUN)


def test_a_damaged_file_or_one_that_is_gone_and_a_time_without_runs_are_refused(
    data: str, profd: CommandLine
) -> None:
    profd("fleet", data, "--until", "2020-01-01", code=ExitCode.USAGE)
    next(Path(data).glob("samples/**/*.parquet")).unlink()
    assert "export its runs again" in profd("fleet", data, code=ExitCode.UNREADABLE_RUN)
    next(Path(data).glob("stacks/**/*.parquet")).write_bytes(b"PAR1 no more")
    profd("fleet", data, code=ExitCode.UNREADABLE_RUN)
