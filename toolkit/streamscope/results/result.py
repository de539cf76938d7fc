"""The rule of every result: data, text, Markdown, HTML, and files whose suffix says the form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamscope.arguments import given_path
from streamscope.errors import OutputError, printable
from streamscope.files import suffix_of, written_whole
from streamscope.renamed import Renamed
from streamscope.results import views, widgets

if TYPE_CHECKING:
    import pandas as pd

REPORTS = (".html", ".pdf", ".md")
PICTURES = (".svg", ".png")


class Result(Renamed):
    """A result: a notebook shows it, `save` writes it, `to_dict` turns it into data.

    A class of results names its kind by ``view``, and the view of that name shows it. It has `to_dict` and ``__str__`` of its own, and
    extends `writers` if it has further kinds of files.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async", "graph"], device="simulated", progress=False)
    >>> found = ss.diff(runs["async"].trace, runs["graph"].trace)
    >>> [found.save(f"diff{suffix}").name for suffix in (".md", ".json")]
    ['diff.md', 'diff.json']
    >>> found.save("diff.docx")
    Traceback (most recent call last):
    ...
    streamscope.errors.OutputError: cannot write diff.docx: its name ends with '.docx' (use .html, .pdf, .md, .json, .svg or .png)
    """

    view: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values. Units stand in the names; unknown and infinite values are None."""
        raise NotImplementedError

    def to_markdown(self) -> str:
        """Return the result as Markdown, for a pull request or a wiki."""
        return views.markdown(self, self._markdown())

    def save(self, path: str | Path) -> Path:
        """Write the result to a file, and return its path.

        Parameters
        ----------
        path : str or Path
            Its suffix says the form. Every result has ``.html``, ``.pdf`` and ``.md`` (as `report`), and ``.json`` (`to_dict`); with a
            picture also ``.svg`` and ``.png``. A `Trace` and some others have more; an unknown suffix gives an error that lists them.

        Raises
        ------
        OutputError
            The file cannot be written, its suffix is none of these, or there is no Chromium for a PDF or PNG.
        """
        target = given_path(path, error=OutputError)
        writers = self.writers()
        return writers[suffix_of(target, *writers)](target)

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the result, each by the suffix of its files.

        Examples
        --------
        >>> list(ss.audit(np.tanh, np.ones(4, np.float32)).writers())
        ['.html', '.pdf', '.md', '.json']
        """
        pictures = dict.fromkeys(PICTURES, self.picture) if views.pictures(self) else {}
        return {**dict.fromkeys(REPORTS, self.report), ".json": self._save_json, **pictures}

    def report(self, path: str | Path) -> Path:
        """Write one file for others, which as HTML needs no network, and return its path.

        Of a comparison or trace it holds the finding, metrics, notes and live timelines; of more than a million spans, a still picture.

        Parameters
        ----------
        path : str or Path
            Its suffix says the form: ``.html``, ``.pdf`` (printed by Chromium) or ``.md``, which has no picture.

        Raises
        ------
        OutputError
            The file cannot be written, its suffix is another, or there is no Chromium for a PDF.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
        >>> runs.report("step.md").read_text().splitlines()[0]
        '# parallel_branches · simulated NVIDIA H200: all times are simulated'
        >>> runs["graph"].trace.report("step.html").name
        'step.html'
        """
        target = given_path(path, error=OutputError)
        suffix = report_suffix(target)
        if suffix == ".html":
            return self._page(target)
        with written_whole(target) as unfinished:
            if suffix == ".md":
                unfinished.write_text(self.to_markdown(), encoding="utf-8")
            else:
                unfinished.write_bytes(widgets.load("chromium:pdf_by")(self._page))
        return target

    def picture(self, path: str | Path, of: str | None = None) -> Path:
        """Write a timeline or a chart of the result as a picture, and return its path.

        Parameters
        ----------
        path : str or Path
            Its ending says the format: ``.svg`` or ``.png``.
        of : str, optional
            Name of the picture; the first by default. A comparison has ``"timeline"``, ``"makespans"``, ``"speedups"``, ``"overlaps"``,
            ``"launches"`` and ``"memory"``; other packages add theirs.

        Raises
        ------
        OutputError
            The file cannot be written, its name ends otherwise, there is no such picture, or there is no Chromium for a PNG.
        TraceError
            There is nothing to draw: no launches, no time, no memory.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
        >>> runs.picture("timelines.svg").name, runs.picture("speedups.svg", of="speedups").name
        ('timelines.svg', 'speedups.svg')
        >>> runs["graph"].trace.picture("graph.svg").name
        'graph.svg'
        """
        target = given_path(path, error=OutputError)
        suffix = suffix_of(target, *PICTURES)
        drawn = views.pictures(self)
        if of is None:
            of = next(iter(drawn), type(self).__name__)
        if of not in [*drawn]:  # not a mapping's `in`, which takes no list
            raise OutputError(f"there is no picture of {of!r:.40}", hint=f"there are {', '.join(drawn)}" if drawn else "save it as .html")
        svg = drawn[of]()
        with written_whole(target) as unfinished:
            unfinished.write_bytes(svg.encode() if suffix == ".svg" else widgets.load("chromium:png_of")(svg))
        return target

    def _markdown(self) -> str:
        """Return Markdown for a view that has none: the text, as a block of code."""
        return "".join(f"    {line}\n" for line in printable(str(self)).splitlines())

    def _repr_html_(self) -> str | None:
        return views.html(self)

    def _page(self, path: Path) -> Path:
        """Write the report as HTML."""
        whole = views.renderer(self, "report")
        if whole is not None:
            return Path(whole(self, path))
        title = printable(str(self)).partition("\n")[0]
        written: Path = widgets.load("report:still_page")(path, title=title, body=views.html(self))
        return written

    def _save_json(self, path: Path) -> Path:
        with written_whole(path) as unfinished:
            unfinished.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return path


def save_table(table: pd.DataFrame, path: Path) -> Path:
    """Write a table as CSV or Parquet, as the suffix says, and return the path."""
    with written_whole(path) as unfinished:
        (table.to_csv if path.suffix.lower() == ".csv" else table.to_parquet)(unfinished, index=False)
    return path


def report_suffix(path: Path) -> str:
    """Return the suffix that says the form of a report; a name without one is HTML."""
    return suffix_of(path, *REPORTS, other=".html")
