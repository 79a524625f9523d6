"""profd: a sampling-profiler daemon for Python training runs that stays outside of the run.

    cli  ->  tui  ->  daemon/  supervise -> collect -> store
                               api -> render -> analyze -> store.reader

Collectors put what they saw on a bounded queue, one writer thread puts it into the run file, and
everything that shows something (dashboard, report, export, summary) reads that file through one
reader.

For programs: ``profd.open_run("latest")`` gives a run's findings, phases, steps, processes, stacks
and metrics. docs/api.md has it all.
"""

from __future__ import annotations

# Nothing is imported: the command line starts here, in a Python that is another's still.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from profd.daemon.analyze.profile import FunctionRow
    from profd.daemon.analyze.steps import Steps
    from profd.daemon.api.opening import ListedRun, list_runs
    from profd.daemon.api.rows import Rows
    from profd.daemon.api.run import Live, MetricPoint, PhaseShare, Run, StackTime, open_run
    from profd.daemon.api.selectors import Selectors
    from profd.daemon.compare.diff import Diff
    from profd.daemon.errors import ProfdError
    from profd.daemon.findings.finding import Finding
    from profd.daemon.render.summary import ProcessSummary, Summary

__all__ = (
    "Diff",
    "Finding",
    "FunctionRow",
    "ListedRun",
    "Live",
    "MetricPoint",
    "PhaseShare",
    "ProcessSummary",
    "ProfdError",
    "Rows",
    "Run",
    "Selectors",
    "StackTime",
    "Steps",
    "Summary",
    "list_runs",
    "open_run",
)

if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        """Import what is asked for, by then: the command line needs none of it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        from profd.daemon.api import run

        return getattr(run, name)
