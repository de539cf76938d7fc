"""Print the tests that `make quick` runs: the core, and the tests of what changed since the last commit on main.

A changed test file is run. For a changed source file, the tests in the folder of the same name are run: for
``toolkit/streamscope/engines/pushed/lanes.py`` those in ``tests/engines/pushed``, not in the folders below it. For a module at the top of
the package, that is the file of its name, and those in `OF_MODULES`. Tests marked ``slow`` or ``browser`` are left to `make test`, and so
are those of packages that only import what changed.

    python scripts/quick_tests.py [BASE]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = (
    "tests/test_public_names.py",
    "tests/test_wrong_arguments.py",
    "tests/engines/test_engines.py",
    "tests/ops/test_operators.py",
    "tests/program/test_tracing.py",
    "tests/kernels/test_compiler_errors.py",
    "tests/kernels/test_first_numbers.py",
    "tests/project/test_imports.py",
    "tests/project/test_layers.py",
)
"""What breaks first when something far away is changed."""
OTHER_SOURCES = {
    "widgets/frontend": "tests/widgets/test_frontend.py",
    "widgets/streamscope_widgets": "tests/widgets",
    "docs": "tests/docs",
    "notebooks": "tests/notebooks",
}
OF_MODULES = {
    "__init__": ("tests/test_public_names.py", "tests/docs/test_names.py"),
    "__main__": ("tests/cli/test_process.py",),
    "arrays": ("tests/trace/test_spans.py",),
    "device_entry": ("tests/devices/test_contract.py", "tests/guest/test_device.py"),
    "engine_entry": ("tests/engines/test_contract.py", "tests/guest/test_engine.py", "tests/analysis/test_verdict.py"),
    "recorder_entry": ("tests/comparing/test_recorders.py", "tests/project/test_doors.py"),
    "tracebacks": ("tests/widgets/test_errors_in_a_notebook.py",),
    "forks": ("tests/engines/pushed/test_forks.py",),
    "interrupts": ("tests/test_finalisers.py", "tests/engines/pushed/test_interrupts.py", "tests/engines/test_interrupts.py"),
    "options": ("tests/test_arguments.py", "tests/cli/test_cli.py", "tests/widgets/test_magics.py"),
    "public_names": ("tests/docs/test_names.py",),
    "tolerance": ("tests/test_tolerance_on_cuda.py",),
    "tracing": ("tests/program/test_tracing.py", "tests/program/test_printed_program.py"),
}
"""Module at the top of the package -> its tests elsewhere than in the file of its name."""
PROJECT = "tests/project"
"""Where the tests of everything else are: scripts, benchmarks, constraints, README."""


def main() -> None:
    """Print the files, one on a line."""
    base = sys.argv[1] if len(sys.argv) > 1 else base_of_change()
    chosen = {test for path in changed(base) for test in tests_of(path)}
    print("\n".join(sorted({*CORE, *chosen})))


def base_of_change() -> str:
    """Return the last commit that this branch shares with main; where there is no main, the last commit."""
    for main_branch in ("main", "origin/main"):
        shared = git("merge-base", "HEAD", main_branch)
        if shared:
            return shared[0]
    return "HEAD"


def changed(base: str) -> list[str]:
    """Return the files that differ from a commit, those that Git does not know yet among them."""
    known = git("diff", "--name-only", base)
    new = git("ls-files", "--others", "--exclude-standard")
    return [*known, *new]


def git(*arguments: str) -> list[str]:
    """Return the lines that Git answers; none where it refuses."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.splitlines()  # noqa: S603, S607


def tests_of(path: str) -> Iterator[str]:
    """Yield the test files of one changed file."""
    if path.startswith("tests/"):
        file = Path(path)
        yield from [path] if file.name.startswith("test_") and file.exists() else in_folder(file.parent)
    elif path.startswith("toolkit/streamscope/"):
        yield from mirrored(Path(path).relative_to("toolkit/streamscope"))
    else:
        other = next((tests for source, tests in OTHER_SOURCES.items() if path.startswith(f"{source}/")), PROJECT)
        yield from in_folder(Path(other)) if Path(other).is_dir() else [other]


def mirrored(source: Path) -> Iterator[str]:
    """Yield the tests of a file of the toolkit."""
    if source.parent == Path():
        own = Path("tests") / f"test_{source.stem}.py"
        yield from [str(own)] if own.exists() else []
        yield from OF_MODULES.get(source.stem, ())
        return
    yield from in_folder(next(Path("tests") / folder for folder in source.parents if (Path("tests") / folder).is_dir()))


def in_folder(folder: Path) -> Iterator[str]:
    """Yield the test files of a folder, without those below it; none of ``tests`` itself, which has a file for each module."""
    if folder.is_dir() and folder != Path("tests"):
        yield from map(str, sorted(folder.glob("test_*.py")))


if __name__ == "__main__":
    main()
