"""A run in a data set: its rows say what the run says, and a second export takes the place of the
first.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow
import pytest
from pyarrow import dataset, parquet
from support import hostiletexts
from support.fleets import renamed
from support.folders import DOCS
from support.gpurun import write_gpu_run
from support.synthetic import MAIN, PHASE_SHARES, STARTED_NS, steps_counted, write_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable
from profd.daemon.events import EventKind
from profd.daemon.fleet.dataset import (
    NONE,
    TABLES,
    DataSet,
    Manifest,
    Partition,
    date_of,
    encoded,
    is_inside,
)
from profd.daemon.fleet.export import export_run
from profd.daemon.fleet.fleet import Question, ask
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import EventHappened, Record


def put(run: Path, folder: Path) -> Manifest:
    with RunReader(run) as reader, reader.one_moment():
        return export_run(reader, DataSet(str(folder)))


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of the files that manifests name, by pyarrow alone."""
    files = [file.path for manifest in DataSet(str(folder)).manifests() for file in manifest.files]
    wanted = [folder / path for path in files if path.startswith(f"{table}/")]
    return [row for path in wanted for row in parquet.ParquetFile(path).read().to_pylist()]


def test_every_table_has_its_documented_columns(tmp_path: Path) -> None:
    manifest = put(write_run(tmp_path / "a.profd"), tmp_path / "fleet")
    for file in manifest.files:
        schema = parquet.read_schema(tmp_path / "fleet" / file.path)
        assert schema.names == list(TABLES[file.table])
        assert schema.metadata[b"profd.version"] == b"1"
    page = (DOCS / "fleet.md").read_text()
    assert [name for table in TABLES.values() for name in table if f"`{name}`" not in page] == []


def test_steps_are_those_of_the_time_in_which_they_are_counted(tmp_path: Path) -> None:
    def event(at_s: int, kind: EventKind) -> Record:
        return EventHappened(STARTED_NS + at_s * SECOND_NS, kind, "", MAIN)

    def steps(name: str, *also: Record) -> list[float]:
        put(write_run(tmp_path / f"{name}.profd", workers=0, also=also), tmp_path / name)
        return [row["steps"] for row in rows_of(tmp_path / name, "steps")]

    counts = [steps_counted(*count) for count in ((0, 0), (8, 80), (12, 500), (20, 580))]
    assert steps("whole", *counts) == [580]
    assert steps(
        "pieces", *counts, event(8, EventKind.STEPS_LOST), event(12, EventKind.STEP_SOURCE)
    ) == [80, 80]
    assert steps("none", *counts[:2], event(8, EventKind.STEPS_LOST)) == []


@pytest.mark.parametrize("seconds", [20, 420], ids=["by samples", "a long one by its sums"])
def test_time_by_phase_is_that_of_the_run(tmp_path: Path, seconds: int) -> None:
    put(write_run(tmp_path / "a.profd", seconds=seconds, workers=0), tmp_path / "fleet")
    phases = {row["stack"]: row["phase"] for row in rows_of(tmp_path / "fleet", "stacks")}
    spent: Counter[str] = Counter()
    for row in rows_of(tmp_path / "fleet", "samples"):
        if row["role"] == "main" and row["is_main"]:
            spent[phases[row["stack"]]] += row["time_ns"]
    shares = {phase: time_ns / seconds / SECOND_NS for phase, time_ns in spent.items()}
    assert shares == pytest.approx(PHASE_SHARES, abs=1e-9)
    assert {row["minute_ns"] for row in rows_of(tmp_path / "fleet", "samples")} == {
        STARTED_NS + minute * 60 * SECOND_NS for minute in range(-(-seconds // 60))
    }


def test_idle_time_of_gpus_is_exported_by_phase(tmp_path: Path) -> None:
    put(
        write_gpu_run(
            tmp_path / "a.profd", {"gpu0": lambda at_ms: float((at_ms - 1) % 2000 >= 1000)}, {}
        ),
        tmp_path / "f",
    )
    phases = {row["stack"]: row["phase"] for row in rows_of(tmp_path / "f", "stacks")}
    idle = {phases[row["stack"]]: row["gpu_idle_ns"] for row in rows_of(tmp_path / "f", "samples")}
    assert idle == {"data wait": 10 * SECOND_NS, "backward": 0}


def test_an_export_that_fails_leaves_what_was_there_and_the_next_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "a.profd")
    first = put(run, tmp_path / "fleet")

    def full(*_: object) -> None:
        raise OutputUnwritable("no space left", "")

    with monkeypatch.context() as patch:
        patch.setattr(DataSet, "commit", full)
        with pytest.raises(OutputUnwritable):
            put(run, tmp_path / "fleet")
    assert DataSet(str(tmp_path / "fleet")).manifests() == [first]
    assert all((tmp_path / "fleet" / file.path).is_file() for file in first.files)
    third = put(run, tmp_path / "fleet")  # it takes the place of both
    files = {
        str(path.relative_to(tmp_path / "fleet"))
        for path in (tmp_path / "fleet").rglob("*.parquet")
    }
    assert files == {file.path for file in third.files}
    assert [(file.table, file.rows) for file in first.files] == [
        (file.table, file.rows) for file in third.files
    ]
    assert DataSet(str(tmp_path / "fleet")).manifests() == [third]


def test_runs_of_two_nodes_that_have_one_id_are_two_and_one_without_samples_is_there(
    tmp_path: Path,
) -> None:
    data = DataSet(str(tmp_path / "fleet"))
    run = write_run(tmp_path / "a.profd", seconds=0)
    for host in ("node-1", "node-2"):
        with renamed(run, host=host) as reader:
            export_run(reader, data)
    fleet = ask(data, Question())
    assert (fleet.runs, fleet.nodes, fleet.samples, fleet.hours.ranks, fleet.phases) == (
        2,
        2,
        0,
        0.0,
        (),
    )


def test_hostile_names_stay_inside(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er" / "fleet"
    with renamed(
        hostiletexts.write_run(tmp_path / "a.profd"), name="../../../x", host="..", id="../../y"
    ) as reader:
        manifest = export_run(reader, DataSet(str(folder)))
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {tmp_path / "a.profd"}
    assert all(path.is_relative_to(folder) for path in written)
    assert "/job=%2E.%2F..%2F..%2Fx/node=%2E./" in manifest.files[0].path
    assert {row["name"] for row in rows_of(folder, "runs")} == {"../../../x"}


@pytest.mark.parametrize("name", ["a/b=c", "..", "naïve 😈", "50%", "plain-1.0"])
def test_others_read_the_partitions_by_their_names(tmp_path: Path, name: str) -> None:
    with renamed(write_run(tmp_path / "a.profd"), name=name, host=name) as reader:
        export_run(reader, DataSet(str(tmp_path / "fleet")))
    page = (DOCS / "fleet.md").read_text()
    documented = (
        page.partition("```sql\n")[2].partition(";\n```")[0].replace("URL", str(tmp_path / "fleet"))
    )
    hours = duckdb.connect().execute(documented).fetchall()
    assert {job for job, _, _ in hours} == {name}
    assert {phase: 180 * share for _, phase, share in hours} == pytest.approx(PHASE_SHARES)
    columns = pyarrow.schema(
        [
            ("date", pyarrow.string()),
            ("job", pyarrow.string()),
            ("node", pyarrow.string()),
            ("rank", pyarrow.int64()),
        ]
    )
    hive = dataset.partitioning(columns, flavor="hive")
    table = dataset.dataset(tmp_path / "fleet" / "samples", partitioning=hive).to_table(
        columns=["job", "node", "rank"]
    )
    assert {tuple(row.values()) for row in table.to_pylist()} == {(name, name, None)}


def test_a_data_set_may_be_at_a_url_and_is_asked_there(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/fleet"
    with RunReader(write_run(tmp_path / "a.profd")) as reader:
        first, second = (export_run(reader, DataSet(url)) for _ in range(2))
    data = DataSet(url)
    assert data.manifests() == [second]
    assert not data.files.exists(f"{data.root}/{first.files[0].path}")
    assert all(data.files.exists(f"{data.root}/{file.path}") for file in second.files)
    fleet = ask(data, Question())
    assert {one.phase: one.hours.ranks * 180 for one in fleet.phases} == pytest.approx(PHASE_SHARES)


def test_nothing_counts_before_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen = DataSet(str(tmp_path / "fleet")), []
    put_file = DataSet.put

    def watched(self: DataSet, path: str, source: Path) -> None:
        put_file(self, path, source)
        if not path.startswith("manifests/"):
            seen.append(data.manifest("20261120-120000-cifar-3fa9@ada-desktop"))

    monkeypatch.setattr(DataSet, "put", watched)
    put(write_run(tmp_path / "a.profd"), tmp_path / "fleet")
    assert seen
    assert set(seen) == {None}


HOSTILE = [
    "a/b",
    "a=b",
    "..",
    ".",
    ".hidden",
    "_temporary",
    NONE,
    "50%",
    "naïve 😈",
    "a\x00\n\u202eb",
    "*?[x]",
    "a\\b",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_harmless_part_of_a_path_and_can_be_read_back(name: str) -> None:
    part = encoded(name)
    assert unquote(part) == name
    assert not set("/\\=*?[]{}") & set(part)
    assert part.isascii()
    assert part.isprintable()
    assert part[0] not in "._"


def test_names_that_are_too_long_for_a_file_stay_apart() -> None:
    one, other = encoded("😈" * 500), encoded("😈" * 499 + "x")
    assert one != other
    assert max(len(one), len(other)) <= 120
    assert unquote(one).startswith("😈")
    assert "\ufffd" not in unquote(one)


def test_a_day_a_rank_and_what_is_not_known_have_their_place() -> None:
    assert (
        Partition("2026-11-20", "", "a", None).path
        == f"date=2026-11-20/job={NONE}/node=a/rank={NONE}"
    )
    assert Partition("2026-11-20", "a", "b", 0).path.endswith("/rank=0")
    midnight_ns = 1_795_132_800 * 10**9
    assert [date_of(midnight_ns - 1), date_of(midnight_ns)] == ["2026-11-19", "2026-11-20"]
    assert is_inside(f"samples/{Partition('2026-11-20', 'a/..', '*', 3).path}/run-0a.parquet")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "samples/../../x", "other/x.parquet", "samples//x", "samples/*.parquet"]
)
def test_a_path_that_leads_elsewhere_is_known(path: str) -> None:
    assert not is_inside(path)
