"""Execute a notebook and write a copy with its outputs, for example on a machine with a GPU.

python scripts/execute_notebook.py notebooks/01_compare_engines.ipynb notebooks/recorded/01_compare_engines.executed.ipynb --device cuda

It runs in the notebook's own folder, so that its relative paths hold. An error in a cell ends it, and then nothing is
written. With ``--device cuda`` it refuses to begin where there is no GPU, since `ss.open_device("auto")` would take the simulated device.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from streamscope.devices import open_device
from streamscope.files import written_whole

CELL_SECONDS = 300


def execute(source: Path, folder: Path | None = None) -> Any:
    """Execute a notebook in a fresh kernel and return it with its outputs.

    Parameters
    ----------
    source : Path
    folder : Path, optional
        Working folder; the notebook's own by default.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(source, as_version=4)
    resources = {"metadata": {"path": str(folder or source.parent)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        # When each cell ran, by nbclient: of no use to a reader, and different each time.
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = without_folders(output["text"])
    return notebook


def without_folders(text: str) -> str:
    """Return what a cell printed without the names of temporary folders, which are another's on each machine and in each run."""
    return re.sub(re.escape(tempfile.gettempdir()) + r"/[\w.-]+", "<temporary folder>", text)


def main() -> None:
    """Execute the notebook that the command line names."""
    import nbformat

    parser = argparse.ArgumentParser(description="Execute a notebook and write a copy with its outputs.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--device", choices=("auto", "cuda"), default="auto", help="cuda: refuse to run where there is no GPU")
    chosen = parser.parse_args()
    open_device(chosen.device)
    notebook = execute(chosen.source)
    with written_whole(chosen.target) as path:
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"wrote {chosen.target}, {chosen.target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
