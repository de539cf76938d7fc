"""A comparison as static HTML for a notebook, and as a report.

A notebook keeps the summary when it is closed, mailed and reopened without us: the verdict first, then the metrics, then a still
picture. The report is one HTML file that answers the question first, then shows the timelines, then what all of it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamscope.analysis.memory import memory
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.operations import OperationTable, operation_table
from streamscope.analysis.table import ENGINE, EngineTable, MetricsTable, device_words, metrics_table
from streamscope.analysis.verdict import Verdict
from streamscope.errors import TraceError
from streamscope.program.foreign import CaptureInfo
from streamscope.results.views import View, sections
from streamscope.trace import DeviceInfo, TimelineGroup, Trace
from streamscope.trace.counters import ENGINE_NOTE_HEADS
from streamscope.words import binary_size, format_mib, format_us, time_text
from streamscope_widgets import charts, ledger_view
from streamscope_widgets.capture_view import capture_lines, capture_section
from streamscope_widgets.notes_view import notes_section, notes_table
from streamscope_widgets.report import report
from streamscope_widgets.show import still_chart
from streamscope_widgets.show.chart import RowChart
from streamscope_widgets.show.html import (
    Column,
    Html,
    Row,
    above,
    block,
    fill,
    folded,
    joined,
    lead,
    lines,
    page_table,
    small,
    sortable,
    still,
    table,
)
from streamscope_widgets.still_timeline import timeline_image, timeline_svg

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison, Run

MORE_NUMBERS = "More numbers of each engine"
MOST_OPERATIONS = 300
"""More rows than this nobody reads; those of the longest operations are kept."""
ONE_RECORDER = 3
"""Columns of a ledger in which one recorder stands."""
HINDERED_FROM = 1.1
"""An operation that takes this many times as long as under the reference engine is marked."""

STYLE = f"""<style>{still_chart.STYLE}
:root {{ --alarm: #b3261e; }}
@media (prefers-color-scheme: dark) {{ :root {{ --alarm: #ff8a80; }} }}
@media print {{ :root {{ --alarm: #b3261e; }} }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 26px 40px; align-items: start; }}
.warning {{ font-size: 18px; font-weight: 600; color: var(--alarm); margin: 0 0 8px; }}
.changes {{ font-size: 15px; max-width: 68em; margin: 0; text-wrap: pretty; }}
.best {{ font-weight: 700; }}
.notes {{ color: var(--soft); font-size: 12.5px; margin: 8px 0 0; }}
details {{ margin: 8px 0 0; }}
summary {{ cursor: pointer; color: var(--soft); }}
details dl, details ul {{ margin: 6px 0 10px; max-width: 90em; }}
details ul {{ padding-left: 20px; }}
dt {{ font-weight: 600; margin-top: 6px; }}
dd {{ margin: 0; color: var(--soft); }}
.facts td:first-child {{ white-space: nowrap; }}
.facts td + td {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
.noted :is(th, td) {{ text-align: left; }} .noted td:last-child {{ white-space: normal; overflow-wrap: anywhere; min-width: 14em; }}
.hindered {{ color: var(--accent); }}
.told :is(th, td):nth-child(-n+4) {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
@media print {{
  details::details-content {{ content-visibility: visible; block-size: auto; }}
  summary {{ list-style: none; font-weight: 600; color: var(--ink); }}
  .screen {{ display: none; }} /* hundreds of operations are for a screen, or for the traces */
  .charts {{ grid-template-columns: 1fr 1fr; gap: 6px 32px; }} .changes {{ font-size: 13px; }} details {{ margin: 4px 0 0; }}
  details dl {{ columns: 2; column-gap: 32px; max-width: none; font-size: 10px; line-height: 1.3; }}
  dl div, .charts > div {{ break-inside: avoid; }}
  dt {{ margin-top: 4px; }}
}}
</style>"""


def comparison_html(comparison: Comparison) -> Html:
    """Return a comparison as HTML of less than 200 kB."""
    return summary_html(*_parts(comparison), capture=comparison.capture, notes=_notes(comparison))


def show_with_timeline(comparison: Comparison) -> None:
    """Show a comparison and its live timelines, which take the picture's place, as outputs of a cell."""
    from IPython.display import display

    page = summary_html(*_parts(comparison), capture=comparison.capture, notes=_notes(comparison), live=True)
    display({"text/html": str(page), "text/plain": str(comparison)}, raw=True)  # type: ignore[no-untyped-call]
    comparison.timeline().show_live()


def _notes(comparison: Comparison) -> Html:
    return notes_table(comparison.note_rows(), ENGINE_NOTE_HEADS)


def _parts(comparison: Comparison) -> tuple[str, DeviceInfo, list[TimelineGroup], Mapping[str, EngineMetrics], str]:
    return comparison.program, comparison.device, comparison.groups(), comparison.metrics, comparison.verdict


def summary_html(
    title: str,
    device: DeviceInfo,
    groups: Sequence[TimelineGroup],
    metrics: Mapping[str, EngineMetrics],
    verdict: Verdict | str,
    *,
    capture: CaptureInfo | None = None,
    notes: Html | None = None,
    live: bool = False,
) -> Html:
    """Return a comparison as HTML of less than 200 kB that needs no script, style sheet or network.

    ``title``: name of the comparison, for example the program's.
    ``device``: if it is simulated, title, verdict and picture say so.
    ``groups``: for the picture; may be empty.
    ``verdict``: with a `Verdict`, its evidence is there too, folded.
    ``capture``: of captured code.
    ``notes``: the table of your notes.
    ``live``: whether live timelines follow in the next output.
    """
    found = metrics_table(metrics, () if isinstance(verdict, str) else verdict.wrong)
    picture = timeline_image(groups, str(verdict)) if groups else Html()
    return block(
        above(f"{title} · {device_words(device)}"),
        lead(str(verdict)),
        Html() if capture is None else capture_lines(capture),
        _summary_metrics(found),
        small(note_lines(found)),
        "" if isinstance(verdict, str) else folded("What the verdict rests on", lines(verdict.evidence)),
        _summary_ledger(groups, metrics),
        notes or Html(),
        still(picture) if live else picture,
    )


def metrics_html(metrics: EngineMetrics | EngineTable) -> Html:
    """Return metrics as HTML: a row for each engine or, of one, for each metric."""
    engines = metrics if isinstance(metrics, EngineTable) else EngineTable({metrics.engine: metrics})
    found = metrics_table(engines, engines.wrong)
    simulated = [above("all times are simulated")] if any(each.simulated for each in engines.values()) else []
    shown = _summary_metrics(found) if isinstance(metrics, EngineTable) else _upright(found, metrics.engine)
    return block(*simulated, shown, small(note_lines(found)))


def _upright(found: MetricsTable, engine: str) -> Html:
    """Return the metrics of one engine, one below the other, each with its definition."""
    rows = zip(found.headings, found.cells[engine], (meaning.partition(". ")[0].rstrip(".") for meaning in found.definitions), strict=True)
    return table([Column(found.names[engine], kind="text"), Column(), Column(kind="prose")], map(Row, rows))


def note_lines(found: MetricsTable) -> Html:
    """Return the notes of a table, numbered."""
    return lines(f"[{number}] {note}" for number, note in enumerate(found.notes, 1))


def columns_of(found: MetricsTable) -> list[Column]:
    """Return the columns of a table of engines, each with its definition."""
    return [Column(ENGINE, kind="text"), *map(Column, found.headings, found.definitions)]


def rows_of(found: MetricsTable) -> list[Row]:
    """Return a row for each engine; the fastest are bold."""
    return [Row((found.names[engine], *cells), bold=engine in found.best) for engine, cells in found.cells.items()]


def _summary_metrics(found: MetricsTable) -> Html:
    if not found.cells:
        return Html()
    main, more = (table(columns_of(part), rows_of(part)) for part in (found.part(first=True), found.part(first=False)))
    return joined([small(found.caption) if found.caption else Html(), main, folded(MORE_NUMBERS, more)])


def _summary_ledger(groups: Sequence[TimelineGroup], metrics: Mapping[str, EngineMetrics]) -> Html:
    cost, rests = ledger_view.ledger_table(groups), list(ledger_view.what_it_rests_on(groups, metrics))
    shown = table(*cost) if cost else Html()
    if cost and len(cost[0]) > ONE_RECORDER:  # Somebody asked for it.
        return joined([small(ledger_view.TITLE), shown, folded(ledger_view.RESTS, lines(rests))])
    title = f"{ledger_view.TITLE}, and what each number rests on" if cost else ledger_view.RESTS
    return folded(title, shown, lines(rests)) if rests else Html()


def comparison_report(comparison: Comparison, path: Path) -> Path:
    """Write a comparison to one self-contained HTML file and return its path.

    Charts are still pictures, so that the file stays small (about 100 kB; Plotly's script alone is 4.8 MB); the timeline is alive.
    """
    table = metrics_table(comparison.metrics, comparison.assessment.wrong)
    return report(
        comparison.groups(),
        path,
        title=f"{comparison.program} · {device_words(comparison.device)}",
        sections=[STYLE + _verdict(comparison), _metrics(table)],
        below=[
            notes_section(comparison.note_rows(), ENGINE_NOTE_HEADS),
            _charts(comparison),
            _of_fastest(comparison, table),
            *([] if comparison.capture is None else [capture_section(comparison.capture)]),
            _more_numbers(table),
            _ledger(comparison),
            _operations(comparison),
            _meanings(table),
            _provenance(comparison),
            *sections(comparison, "html"),
        ],
    )


def _verdict(comparison: Comparison) -> Html:
    """Put the answer first: the bound and the fastest engine; then the effect of each change."""
    found = comparison.assessment
    paragraphs = (
        ("warning", [found.warning]),
        ("verdict", [found.bound, found.hides, found.fastest]),
        ("changes", [found.overlapped, found.communicated, found.awaited, found.changed, found.replayed, found.proviso, found.unchecked]),
    )
    shown = [fill('<p class="{}">{}</p>', name, " ".join(filter(None, words))) for name, words in paragraphs if any(words)]
    evidence = fill("<ul>{}</ul>", [fill("<li>{}</li>", line) for line in found.evidence])
    return joined([*shown, _folded("What this rests on", evidence)])


def _metrics(table: MetricsTable) -> Html:
    first = table.part(first=True)
    caption = fill("<p>{}</p>", table.caption) if table.caption else Html()
    return joined([caption, sortable(page_table(columns_of(first), rows_of(first))), fill('<p class="notes">{}</p>', note_lines(table))])


def _of_fastest(comparison: Comparison, table: MetricsTable) -> Html:
    """Return what costs most and what fills the memory under the fastest engine; other engines run the same lines."""
    from streamscope_widgets.trace_view import code_and_memory  # That page takes its style from here.

    engine = next(iter((*table.best, *comparison)))
    peaks = {memory(group.trace, "kind").peak.bytes for group in comparison.groups() if len(group.trace.memory)}
    same = f"All engines hold the same at most, {binary_size(peaks.pop())}." if len(peaks) == 1 and len(comparison) > 1 else ""
    found = code_and_memory(comparison[engine].trace)
    title = f"Which lines cost most, and what fills the memory, under {engine}"
    return _folded(title, fill('<p class="notes">{}</p>', same) if same else Html(), found) if found else Html()


def _more_numbers(table: MetricsTable) -> Html:
    more = table.part(first=False)
    return _folded(MORE_NUMBERS, sortable(page_table(columns_of(more), rows_of(more))))


def _ledger(comparison: Comparison) -> Html:
    groups = comparison.groups()
    cost, rests = ledger_view.ledger_table(groups), list(ledger_view.what_it_rests_on(groups, comparison.metrics))
    parts = [_folded(ledger_view.TITLE, page_table(*cost))] if cost else []
    if rests:
        parts.append(_folded(ledger_view.RESTS, fill("<ul>{}</ul>", [fill("<li>{}</li>", line) for line in rests])))
    return joined(parts)


def _meanings(table: MetricsTable) -> Html:
    meanings: dict[str, str] = {}
    for heading, meaning in zip(table.headings, table.definitions, strict=True):
        meanings.setdefault(meaning, heading)
    entries = [fill("<div><dt>{}</dt><dd>{}</dd></div>", heading, meaning) for meaning, heading in meanings.items()]
    return _folded("What the numbers mean", fill("<dl>{}</dl>", entries))


def _folded(summary: str, *parts: str) -> Html:
    return fill("<details><summary>{}</summary>{}</details>", summary, parts)


def _charts(comparison: Comparison) -> Html:
    metrics = comparison.metrics
    described = [
        partial(charts.makespans, metrics),
        partial(charts.speedups, metrics, comparison.assessment.wrong),
        partial(charts.launch_overheads, comparison.groups()),
    ]
    peaks = {memory(group.trace, "kind").peak.bytes for group in comparison.groups() if len(group.trace.memory)}
    if len(peaks) > 1:  # Otherwise the facts of each run say how much it is.
        described.append(partial(charts.memories, comparison.groups()))
    if any(m.overlap for m in metrics.values()):  # Otherwise the table says 0, and a picture of nothing says no more.
        described.append(partial(charts.overlaps, metrics))
    return fill('<div class="charts">{}</div>', list(_drawn(described)))


def _drawn(described: Sequence[Callable[[], RowChart]]) -> Iterator[Html]:
    """Draw charts, each unless there is nothing to draw: no launches, no time."""
    for describe in described:
        try:
            chart = describe()
        except TraceError:
            continue
        yield fill("<div>{}</div>", Html(still_chart.row_svg(chart)))


def _operations(comparison: Comparison) -> Html:
    table = operation_table({engine: run.trace for engine, run in comparison.items()})
    total = len(table.operation)
    slowdown = table.slowdown() if table.engines else table.duration_ns
    first = next(iter(comparison.values())).trace
    words, symbols = first.origins.words() if comparison.capture is not None else [], _symbols(first)
    said = [name for name in ("operator", "module", "line") if any(name in each for each in words)]
    columns = [Column("operation"), *map(Column, said), *(Column(f"{engine}, µs") for engine in table.engines)]
    shown = f"The {MOST_OPERATIONS} longest of {total:,}, in the order of the program. " if total > MOST_OPERATIONS else ""
    hindered = table.engines and (slowdown[_shown(table)] >= HINDERED_FROM).any()
    beside = f"In brackets: how much longer than under {table.reference}, which is what its neighbours cost it." if hindered else ""
    listed = _folded(
        f"Each operation under every engine ({total:,})",
        fill('<p class="notes">{}</p>', shown + beside),
        sortable(page_table(columns, [_operation_row(table, slowdown, row, words, said, symbols) for row in _shown(table)])),
    )
    return fill('<div class="screen{}">{}</div>', " told" if said else "", listed)


def _symbols(trace: Trace) -> dict[tuple[int, int], str]:
    """Return the whole names of the kernels of each part of an operation that has some, one a line."""
    spans = trace.spans
    known = np.flatnonzero((spans.symbol >= 0) & (spans.operation >= 0))
    found: dict[tuple[int, int], dict[str, None]] = {}
    for operation, part, symbol in zip(*(column[known].tolist() for column in (spans.operation, spans.part, spans.symbol)), strict=True):
        found.setdefault((operation, part), {})[spans.names[symbol]] = None
    return {key: "\n".join(names) for key, names in found.items()}


def _shown(table: OperationTable) -> list[int]:
    """Choose the rows to show, in program order."""
    if len(table.operation) <= MOST_OPERATIONS:
        return list(range(len(table.operation)))
    longest_ns = np.nanmax(table.duration_ns, axis=1)
    return sorted(np.argsort(-longest_ns, kind="stable")[:MOST_OPERATIONS].tolist())


def _operation_row(
    table: OperationTable,
    slowdown: np.ndarray,
    row: int,
    words: Sequence[Mapping[str, str]],
    said: Sequence[str],
    symbols: Mapping[tuple[int, int], str],
) -> Row:
    """Return a row: number and name of the kernel, its whole name where the pointer rests, its caller, and its duration."""
    operation, part = int(table.operation[row]), int(table.part[row])
    durations = (_duration(ns, ratio) for ns, ratio in zip(table.duration_ns[row], slowdown[row], strict=True))
    name, symbol = f"{operation}{f'.{part}' if part else ''} {table.name[row]}", symbols.get((operation, part), "")
    known = words[operation] if operation < len(words) else {}
    first = fill('<span title="{}">{}</span>', symbol, name) if symbol and symbol != table.name[row] else name
    return Row((first, *(known.get(each, "") for each in said), *durations))


def _duration(duration_ns: float, ratio: float) -> str:
    if np.isnan(duration_ns):
        return "–"
    words = format_us(duration_ns / 1000)
    return fill('{} <span class="hindered">({:.2f}×)</span>', words, ratio) if ratio >= HINDERED_FROM else words


def _provenance(comparison: Comparison) -> Html:
    facts = page_table((Column(), Column()), map(Row, _facts(comparison)))
    return _folded("Where the numbers come from", fill('<div class="facts">{}</div>', facts))


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    if comparison.settings:
        yield "settings", _plain(comparison.settings)
    yield "device", device_words(comparison.device)
    yield from ((name.replace("_", " "), _plain(value)) for name, value in comparison.device.details.items())
    for engine, run in comparison.items():
        yield engine, "; ".join(_run_facts(run, comparison.checked_against))
    info = next(iter(comparison.values())).trace.info
    if info.calibration:  # a simulated device needs none
        yield "calibration", _plain(info.calibration)
    yield "versions", _plain(info.versions)
    yield "recorded", f"{info.created}, by {info.recorder}"


def _run_facts(run: Run, checked_against: str) -> Iterator[str]:
    recorded_ns = run.trace.info.ledger.get("recorded_ns")
    yield f"{time_text(run.metrics.makespan_us * 1e3)}, median of {run.metrics.repeats} without recording"
    if recorded_ns is not None:
        yield f"{time_text(recorded_ns)} in the recorded run"
    if held := run.trace.info.memory:
        yield "memory: " + ", ".join(f"{_purpose(name)} {format_mib(size)} MiB" for name, size in held.items())
    if not np.isnan(run.max_abs_error):
        verdict = "right" if run.correct else "WRONG"
        yield f"{verdict}: worst error {run.max_abs_error:.3g} against {checked_against}, where {run.tolerance:.3g} is allowed"


def _purpose(name: str) -> str:
    """Name a kind of memory: ``"device_bytes"`` is the sum of those before it."""
    return {"device_bytes": "on the device in all", "host_bytes": "page-locked on the host"}.get(name, name.removesuffix("_bytes"))


def _plain(value: object) -> str:
    """Write a JSON value as words."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{str(name).removesuffix('_ns').replace('_', ' ')} {_plain(part)}{' ns' if str(name).endswith('_ns') else ''}"
            for name, part in value.items()
        )
    return f"{value:,}" if isinstance(value, int | float) and abs(value) >= 100_000 else str(value)


CHARTS: dict[str, Callable[[Comparison], RowChart]] = {
    "makespans": lambda comparison: charts.makespans(comparison.metrics),
    "speedups": lambda comparison: charts.speedups(comparison.metrics, comparison.assessment.wrong),
    "overlaps": lambda comparison: charts.overlaps(comparison.metrics),
    "launches": lambda comparison: charts.launch_overheads(comparison.groups()),
    "memory": lambda comparison: charts.memories(comparison.groups()),
}


def _chart(of: str) -> Callable[[Comparison], str]:
    return lambda comparison: still_chart.row_document(CHARTS[of](comparison))


COMPARISON = View(
    of="comparison",
    html=comparison_html,
    pictures={"timeline": lambda comparison: timeline_svg(comparison.groups())} | {of: _chart(of) for of in CHARTS},
    timeline="streamscope_widgets.timeline:comparison_timeline",  # anywidget takes a second to import
    report=comparison_report,
)
METRICS = View(of="metrics", html=metrics_html)
