"""A file as JupyterLab shows it: its name, the finding, and the timelines, as one block of bytes.

The server runs it as a program of its own, ``python -m streamscope_widgets.lab.document PATH NAME QUESTION``: so a large file neither holds
up the server nor leaves anything in its memory. Of a file that is too long to be sent whole, the program goes on answering questions.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from streamscope.analysis.summary import summary
from streamscope.analysis.table import device_words
from streamscope.comparing.comparison import load_comparison
from streamscope.comparing.comparison_folder import FILE_NAME, REPORT_NAME
from streamscope.errors import StreamscopeError
from streamscope.formats.read import read
from streamscope.ranks.job import FILE_NAME as JOB_FILE
from streamscope.trace import TimelineGroup
from streamscope.trace.counters import note_rows
from streamscope.words import capitalised, counted, shortened
from streamscope_widgets.job_timeline import job_groups, job_of
from streamscope_widgets.payload import SECOND_BUNDLE, as_groups, bundle_source, encode
from streamscope_widgets.ranks_view import ranks_tables
from streamscope_widgets.show.html import folded, joined
from streamscope_widgets.tile_questions import answer
from streamscope_widgets.tiles import Tiles, needs_tiles
from streamscope_widgets.trace_view import code_and_memory, finding_of, trace_title

MOST_WARNINGS, LONGEST_WARNING = 20, 500
MOST_NOTES = 50
CAPTURED = ".captured.json"
_LONGEST_STAMP = 4096
ALIGNED = 8
"""Bytes: columns of numbers must begin at a multiple of it."""


class Document:
    """A trace, a comparison, captured code or a job that is read, and the browser's questions about it.

    ``name``: the reader's name for it.
    ``gpu``: which GPU, where the file has several; by default all.
    ``files``: those of the ranks of a job.
    """

    def __init__(self, path: Path, name: str, gpu: int | None = None, files: Sequence[str] = ()) -> None:
        self.path = path
        """A trace in any format that `streamscope.read` knows, the ``comparison.json`` in the folder of a comparison, or captured code,
        which is compared on the simulated device; or the ``ranks.json`` of a job, or a folder with its files."""
        self.files = [Path(file) for file in files]
        self.stamp = self._stamp()  # Before it is read: what is written meanwhile is another version.
        self.job = path.name == JOB_FILE or path.is_dir() or bool(files)
        self.ranks: tuple[int, ...] = ()
        self.told, self.groups = _read_job(path, name, self.files) if self.job else _read(path, name, gpu)
        self.tiles = Tiles(self.groups) if needs_tiles(self.groups) else None
        # Of a long trace they take as long as it takes to read: they are had when they are asked for.
        self.tables = None if self.tiles else _tables(self.groups)

    @property
    def stays(self) -> bool:
        """Whether more is asked of it than that it is drawn, and reading it again would take long."""
        return self.job or self.tiles is not None

    def _stamp(self) -> str:
        """Return a text that changes with each of its files."""
        folder = [self.path, *sorted(self.path.iterdir())] if self.path.is_dir() else [self.path]
        return "".join(map(_stamp, self.files or folder))[:_LONGEST_STAMP]

    def choose(self, ranks: Sequence[int]) -> None:
        """Show other ranks of a job.

        Raises
        ------
        TraceError
            There is no such rank.
        """
        group = job_of(self.groups)
        if group is None or group.job is None or tuple(ranks) in ((), self.ranks, group.ranks):
            return
        self.groups, self.ranks = job_groups(group.job, ranks), tuple(ranks)
        self.tiles = Tiles(self.groups) if needs_tiles(self.groups) else None

    def whole(self) -> bytes:
        """Return the first drawing: the length of the header in 4 bytes, 4 empty bytes, the header as JSON, the block of columns.

        The header has ``title``, ``finding``, ``warnings``, ``notes`` (yours), ``further`` (views that Python has besides), ``header``,
        ``tables`` (HTML of what costs most and fills the memory; None where the question ``tables`` has it), ``stamp`` and ``bundle``,
        which tell versions of both apart. Of a trace it has ``gpu``, the number of the GPU that is shown, None for all, and ``gpus``, the
        numbers of all in the file.
        """
        payload = self.tiles.overview() if self.tiles else encode(self.groups)
        bundles = bundle_source() + bundle_source(SECOND_BUNDLE)
        digest = hashlib.sha256(bundles.encode()).hexdigest()[:8]
        told = {**self.told, "tables": self.tables, "stamp": self.stamp}
        return _packed({**told, "header": payload.header, "bundle": digest}, payload.block)

    def answer(self, question: Mapping[str, Any]) -> bytes:
        """Return the answer to a question, packed as `whole` is; for none, that.

        The header has ``changed`` instead where the file is not the one with the question's ``stamp``: its rows are other ones.
        """
        if self.stamp != self._stamp() or question.get("stamp", self.stamp) != self.stamp:
            return _packed({"changed": True}, b"")
        self.choose(question.get("ranks") or ())
        if "type" not in question:
            return self.whole()
        if question["type"] == "tables":
            self.tables = self.tables or _tables(self.groups)
            return _packed({"tables": self.tables}, b"")
        found = answer(self.tiles, self.groups, question)
        refused = found.header.get("refused")
        return refusal(refused) if refused else _packed({"header": found.header}, found.block)


def serve(path: Path, name: str, question: Mapping[str, Any], questions: Iterable[str], out: BinaryIO) -> None:
    """Answer a question and, where the file is too long to be sent whole, those that come, each a line of JSON.

    Each answer has its length before it, in 8 bytes, in a line of its own whether more questions are answered.
    """
    try:
        found = Document(path, name, question.get("gpu"), question.get("files", ()))
        first, more = found.answer(question) if "type" in question or question.get("ranks") else found.whole(), found.stays
    except StreamscopeError as error:
        # Where the server's files lie is the server's matter.
        first, more = refusal(str(error).replace(f"{path.parent}/", "")), False
    for sent in chain([first], (_answered(found, json.loads(line)) for line in questions) if more else ()):
        out.write((b"more\n" if more else b"done\n") + len(sent).to_bytes(8, "little") + sent)
        out.flush()


def _answered(document: Document, question: Mapping[str, Any]) -> bytes:
    try:
        return document.answer(question)
    except StreamscopeError as error:
        return refusal(str(error))


def _stamp(path: Path) -> str:
    """Return when a file was written and how long it is; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}-{found.st_size}"


def refusal(message: str) -> bytes:
    """Return the message in place of a document that cannot be: ``refused`` says why."""
    return _packed({"refused": message}, b"")


def _packed(content: Mapping[str, Any], block: bytes) -> bytes:
    header = json.dumps(content, allow_nan=False).encode()
    header += b" " * (-len(header) % ALIGNED)
    return len(header).to_bytes(4, "little") + bytes(4) + header + block


def _read(path: Path, name: str, gpu: int | None) -> tuple[dict[str, Any], tuple[TimelineGroup, ...]]:
    """Return title and finding of a file, and the timelines."""
    if path.name == FILE_NAME:
        comparison = load_comparison(path.parent)
        title = f"{comparison.program} · {device_words(comparison.device)}"
        further = f"runs = ss.load_comparison({name!r}) has all numbers; runs.report('{REPORT_NAME}') writes a page for others."
        return _told(title, comparison.verdict, further, notes=comparison.note_rows()), as_groups(comparison.groups())
    if path.name.endswith(CAPTURED):
        # They load the engines, which takes as long as all the rest of showing a small file.
        from streamscope.capturing.saved import load_captured
        from streamscope.comparing.compare import compare

        captured = load_captured(path)
        comparison = compare(captured, device="simulated", progress=False)
        title = f"{comparison.program} · {device_words(comparison.device)} · {name}"
        further = f"captured = ss.load_captured({name!r}) has its bound and certificate; ss.compare(captured) gave these timelines."
        return _told(title, f"{captured}.\n{comparison.verdict}", further), as_groups(comparison.groups())
    trace = read(path, gpu=gpu, progress=False)  # The server may run in a terminal.
    found = summary(trace)
    warnings = [shortened(capitalised(warning), LONGEST_WARNING) for warning in found.warnings[:MOST_WARNINGS]]
    chosen = "" if gpu is None else f", gpu={gpu}"
    further = (
        f"trace = ss.read({name!r}{chosen}) has all numbers; ss.what_if(trace, engine='graph') predicts a CUDA graph, "
        "ss.diff(trace, other) compares, trace.report('report.html') writes a page for others."
    )
    told = _told(f"{trace_title(trace.info)} · {name}", finding_of(trace, found), further, warnings, note_rows(trace.user_notes))
    gpus = trace.info.device.gpus or trace.gpus
    return {**told, "gpu": trace.info.device.gpu if len(trace.gpus) < 2 else None, "gpus": gpus}, as_groups([trace])


def _read_job(path: Path, name: str, files: Sequence[Path]) -> tuple[dict[str, Any], tuple[TimelineGroup, ...]]:
    """Return title and finding of a job, and the timeline of its first ranks."""
    from streamscope.ranks.reading import read_ranks

    job = read_ranks(list(files) or (path.parent if path.name == JOB_FILE else path), progress=False)
    named = [file.name for file in files] or name.removesuffix(JOB_FILE) or "."
    further = (
        f"job = ss.read_ranks({named!r}) has all numbers; job.what_if(rank=1).like(rank=0) predicts a repaired rank, "
        "job.save('job.html') writes a page for others."
    )
    warnings = [shortened(capitalised(warning), LONGEST_WARNING) for warning in job.warnings[:MOST_WARNINGS]]
    return _told(f"{job.title} · {name}", job.verdict, further, warnings), job_groups(job)


def _tables(groups: Sequence[TimelineGroup]) -> str:
    """Return as HTML what costs most and what fills the memory, of several engines, each unfolds; of a job, its ranks and their path."""
    group = job_of(groups)
    if group is not None and group.job is not None:
        return joined(ranks_tables(group.job))
    found = [(group.label, code_and_memory(group.trace)) for group in groups]
    if len(found) == 1:
        return found[0][1]
    return joined([folded(f"{label}: what costs most, and what fills the memory", tables) for label, tables in found if tables])


def _told(title: str, finding: str, further: str, warnings: Sequence[str] = (), notes: Sequence[Sequence[str]] = ()) -> dict[str, Any]:
    lines = [f"Note {', '.join(filter(None, place))}: {text}" for *place, text in notes]
    more = [f"+ {counted(len(lines) - MOST_NOTES, 'more note')}"] if len(lines) > MOST_NOTES else []
    told = {"title": title, "finding": finding, "warnings": list(warnings), "notes": [*lines[:MOST_NOTES], *more]}
    return {**told, "further": f"In a notebook beside it: {further}"}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.stdin, sys.stdout.buffer)
