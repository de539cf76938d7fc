"""Execute a notebook and write a copy with its outputs, for example on a machine with a GPU.

python scripts/execute_notebook.py notebooks/01_compare_engines.ipynb notebooks/recorded/01_compare_engines.executed.ipynb --device cuda

It runs in the notebook's own folder, so that its relative paths hold. An error in a cell ends it, and then nothing is written.
The copy's last cell names the device and the day. Its links hold in ``notebooks/recorded``, wherever it is written first.
The copy's metadata hold a hash of what Streamscope says of the recordings; a test compares it with what the code says today.
With ``--device cuda`` it refuses to begin where there is no GPU, since `ss.open_device("auto")` would take the simulated device.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import tempfile
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from streamscope.comparing.comparison import load_comparison
from streamscope.devices import open_device
from streamscope.files import written_whole
from streamscope_widgets import charts
from streamscope_widgets.comparison_view import comparison_html
from streamscope_widgets.show.still_chart import row_svg

CELL_SECONDS = 300
NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
DATA_URI = "data:image/svg+xml;base64,"


def execute(source: Path, folder: Path | None = None, kernel: Any = None) -> Any:
    """Execute a notebook and return it with its outputs.

    Parameters
    ----------
    source : Path
    folder : Path, optional
        Working folder; the notebook's own by default.
    kernel : jupyter_client.KernelManager, optional
        A kernel that runs, and goes on; a fresh one by default.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    SystemExit
        A signal came, as from ``timeout``.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(source, as_version=4)
    resources = {"metadata": {"path": str(folder or source.parent)}}
    # The state of a widget has no spans; what a reopened notebook shows is the picture before it.
    client = NotebookClient(notebook, kernel, timeout=CELL_SECONDS, kernel_name="python3", resources=resources, store_widget_state=False)
    try:
        client.execute()
    except AssertionError:
        if client.km is not None:
            raise
        # At SIGTERM and SIGINT nbclient gives its kernel back, and then once more, without one.
        cells = (cell for cell in notebook.cells if cell.cell_type == "code")
        running = next((cell.source for cell in cells if "shell.execute_reply" not in cell.metadata.get("execution", ())), "")
        raise SystemExit(f"{source}: stopped by a signal before this cell was done:\n{running}") from None
    finally:
        if kernel is not None and client.kc is not None:
            client.kc.stop_channels()
    for cell in notebook.cells:
        # When each cell ran, by nbclient: of no use to a reader, and different each time.
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = without_folders(output["text"])
    return notebook


def way_back(source: Path) -> str:
    """Return the way from the folder in which the copy of a notebook is kept to that of the notebook."""
    folder = source.resolve().parent
    return os.path.relpath(folder, NOTEBOOKS / "recorded" / folder.relative_to(NOTEBOOKS))


def links_from(folder: str, text: str) -> str:
    """Return Markdown with its links to other files as they are written one folder or more away, which gets to theirs by ``folder``."""
    return re.sub(r"(\]\()(?![a-z]+:|#|/)", rf"\g<1>{folder}/", text)


def said_hash(recorded: Path) -> str:
    """Hash the words that Streamscope shows of the recordings in a folder: those of summaries, of pictures, of charts.

    Colours and places are not part of it, so that a copy stays as it is until something else is said.
    """
    digest = hashlib.sha256()
    for folder in sorted(path.parent for path in recorded.glob("*/comparison.json")):
        comparison = load_comparison(folder)
        found = [charts.makespans(comparison.metrics), charts.speedups(comparison.metrics), charts.overlaps(comparison.metrics)]
        for page in (comparison_html(comparison), *map(row_svg, found)):
            digest.update("\n".join(_Words(page).words).encode())
    return digest.hexdigest()


class _Words(HTMLParser):
    """The words of a page, of its titles, and of the pictures in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("title", "alt"):
                self.words.append(value or "")
            elif name == "src" and (value or "").startswith(DATA_URI):
                self.words += _Words(base64.b64decode((value or "")[len(DATA_URI) :]).decode()).words

    def handle_data(self, data: str) -> None:
        if self.cdata_elem != "style":  # A style sheet has no words. Newer versions of Python have titles here, too.
            self.words.append(data)


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
    way, device = way_back(chosen.source), open_device(chosen.device).info.name
    notebook = execute(chosen.source)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = links_from(way, cell.source)
    notebook.cells.append(nbformat.v4.new_markdown_cell(f"Executed on {device}, {datetime.now(UTC):%Y-%m-%d}."))
    notebook.metadata["streamscope"] = {"said": said_hash(chosen.source.parent / "recorded")}
    with written_whole(chosen.target) as path:
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"wrote {chosen.target}, {chosen.target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
