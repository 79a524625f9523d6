"""Each command loads only what it needs: seen in fresh processes, by the modules that they end
with.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT, TARGET

TARGETS = sorted(TARGET.glob("*.py"))
HELP = """
import runpy, sys
sys.argv = ["profd", "{command}", "--help"]
try:
    runpy.run_module("profd", run_name="__main__")
except SystemExit as end:
    if end.code:
        raise
"""


def modules_after(program: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter holds after running ``program``."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print('loaded', *sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ended.stdout.splitlines()[-1].split()[1:])


def loaded_of(unwanted: set[str], program: str) -> set[str]:
    """Return which of the ``unwanted`` modules, or of the modules below them, a program loads."""
    return {
        name
        for name in modules_after(program)
        if any(name == root or name.startswith(f"{root}.") for root in unwanted)
    }


@pytest.mark.parametrize("command", ["attach", "run"])
def test_help_of_a_command_loads_no_screen_and_no_gpu_library(command: str) -> None:
    assert (
        loaded_of({"textual", "torch", "jinja2", "pynvml"}, HELP.format(command=command)) == set()
    )


_IN_EACH_PROCESS = {
    "_hashlib",
    "platformdirs",
    "http",
    "pickle",
    "prometheus_client",
    "opentelemetry",
    "wsgiref",
}
"""What takes a megabyte or two of each process that has it, and what none needs from its start to
its end.
"""


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("cli.main, profd.cli.run", {"asyncio", "ssl", "sqlite3", "tempfile", "statistics"}),
        (
            "cli.main, profd.cli.attach, profd.cli.liverun",
            {"asyncio", "ssl", "sqlite3", "tempfile", "statistics"},
        ),
        ("daemon.session.__main__", set()),
        ("daemon.api.wholerun", {"asyncio", "ssl", "email", "tempfile"}),
        ("daemon.asuser", {"asyncio", "ssl", "tempfile", "random"}),
    ],
    ids=["run", "attach", "session", "findings", "files"],
)
def test_what_stays_for_a_whole_run_is_small(modules: str, unwanted: set[str]) -> None:
    assert loaded_of(_IN_EACH_PROCESS | unwanted, f"import profd.{modules}") == set()


def test_package_itself_loads_nothing_of_profd() -> None:
    unwanted = {"typing", "msgspec", "click", "sqlite3"}
    loaded = modules_after("import profd")
    assert {name for name in loaded if name.startswith("profd.")} | loaded & unwanted == set()


def imports(script: Path) -> set[str]:
    """Return the names of the packages that a file imports, wherever in it."""
    return imports_of(ast.parse(script.read_text()))


def imports_of(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("script", TARGETS, ids=lambda path: path.stem)
def test_target_knows_nothing_of_profd(script: Path) -> None:
    assert "profd" not in imports(script)


def test_nothing_is_unpickled_or_evaluated() -> None:
    files = [
        file
        for folder in ("cli", "daemon", "tui")
        for file in sorted((ROOT / folder).rglob("*.py"))
    ]
    assert len(files) > 200
    assert {
        file.name
        for file in files
        if imports(file) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    } == set()
    assert {
        file.name: found for file in files if (found := evaluates(ast.parse(file.read_text())))
    } == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(
            ("eval(text)", {"eval"}),
            ("run = exec", {"exec"}),
            ("__import__('pickle').loads(text)", {"__import__"}),
        ),
        ("import builtins as b\nb.eval(text)", {"builtins"}),
        ("from builtins import eval as read", {"builtins"}),
        ("__builtins__['eval'](text)", {"__builtins__"}),
        ("re.compile(text); model.eval(); word = 'eval'", set()),
    ],
)
def test_each_way_to_evaluate_a_text_is_found(text: str, found: set[str]) -> None:
    assert evaluates(ast.parse(text)) == found


def evaluates(tree: ast.Module) -> set[str]:
    """Return by which of Python's names a module could run a text: it imports, calls or passes them
    on.
    """
    loads = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    ways = {"eval", "exec", "compile", "__import__", "__builtins__", "builtins", "codeop", "runpy"}
    return ways & (imports_of(tree) | {node.id for node in loads})


def room(file: Path) -> str:
    """Return the package that a file of the product lies in, below profd: ``daemon.store``,
    ``tui``.
    """
    folders = file.relative_to(ROOT).parts[:-1]
    return ".".join(folders[: 2 if folders[0] == "daemon" else 1])


def test_what_another_package_imports_has_a_docstring() -> None:
    files = [
        file
        for folder in ("cli", "daemon", "tui")
        for file in sorted((ROOT / folder).rglob("*.py"))
    ]
    module = {
        ".".join(("profd", *file.relative_to(ROOT).with_suffix("").parts)): file for file in files
    }
    undocumented = {
        (name, node.name)
        for name, file in module.items()
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not ast.get_docstring(node)
    }
    used = {
        (node.module or "", alias.name): room(file)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module in module and room(module[node.module]) != room(file)
    }
    assert len(used) > 300
    assert sorted(undocumented & used.keys()) == []
