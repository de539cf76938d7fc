"""``%%streamscope``: the operations of a notebook cell under every engine.

::

    %%streamscope --engines async,graph -o runs
    h = ss.ops.relu(ss.ops.matmul(x, w1))
    ss.ops.softmax(ss.ops.matmul(h, w2))

The cell is a program (see `streamscope_widgets.cell_program`): the arrays that it reads are the inputs, its last expression is the
result, and its assignments stay inside. It is compiled once, outside the timing. Its errors are raised, so that a notebook that fails
stops. ``%%streamscope record`` runs any cell, as it is, and records its CUDA work.

Implementations are loaded when a magic is first used, so that ``%load_ext streamscope`` is quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from streamscope_widgets.magic_options import RECORD, USAGE_OF_ASSERT, completions, parser

if TYPE_CHECKING:
    from IPython.core.completer import Matcher
    from IPython.core.interactiveshell import InteractiveShell

    from streamscope.comparing.comparison import Comparison

MATCHER = "streamscope"
Words = Callable[[SimpleNamespace], list[str]]
"""Takes a line up to the cursor and the word there; returns completions of the word."""


@dataclass
class Session:
    """A shell, and the comparison that its magic made last."""

    shell: InteractiveShell
    latest: Comparison | None = None


def register(shell: InteractiveShell) -> None:
    """Add ``%%streamscope``, ``%streamscope`` and ``%streamscope_assert`` to a shell, with completion."""
    session = Session(shell)
    compares, asserts = partial(run_magic, session), partial(run_assert, session)
    compares.__doc__, asserts.__doc__ = parser().format_help(), f"{USAGE_OF_ASSERT}\n--help lists the metrics."
    shell.magics_manager.register_function(compares, "line_cell", "streamscope")
    shell.magics_manager.register_function(asserts, "line", "streamscope_assert")
    words: dict[str, Words] = {
        "%streamscope": completions,
        "%%streamscope": completions,
        "%streamscope_assert": partial(_metrics, session),
    }
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", None) != MATCHER]
    matchers.append(_matcher(words))
    transforms = shell.input_transformers_cleanup
    transforms[:] = [_line_magic_alone, *(each for each in transforms if getattr(each, "__name__", "") != _line_magic_alone.__name__)]


def _line_magic_alone(lines: list[str]) -> list[str]:
    """Make the line magic of a ``%%streamscope`` with nothing below it: IPython calls no cell magic there, so it would show no help."""
    written = [number for number, line in enumerate(lines) if line.strip()]
    if len(written) == 1 and re.match(r"\s*%%streamscope(\s|$)", lines[written[0]]):
        return [line.replace("%%", "%", 1) if number == written[0] else line for number, line in enumerate(lines)]
    return lines


def run_magic(session: Session, line: str, cell: str | None = None) -> Any:
    """Compare the engines on a cell or on a workload, or record a cell; see `cell_comparison.run` and `cell_recording.run`."""
    word, _, rest = line.strip().partition(" ")
    if word == RECORD:
        from streamscope_widgets import cell_recording

        return cell_recording.run(session.shell, rest, cell)
    from streamscope_widgets.cell_comparison import run

    session.latest = run(session.shell, line, cell) or session.latest
    return None


def run_assert(session: Session, line: str) -> None:
    """Fail unless a comparison is as expected, and print the measured values."""
    from IPython.core.error import UsageError

    from streamscope.comparing.comparison import Comparison
    from streamscope_widgets import expectations

    if line.strip() in ("-h", "--help"):
        print(f"{USAGE_OF_ASSERT}\nMetrics: {', '.join(expectations.metric_names())}")  # noqa: T201
        return
    named = re.match(r"\s*--runs(?:\s+|=)(\S+)(.*)", line)
    comparison = session.latest if named is None else session.shell.user_ns.get(named[1])
    if not isinstance(comparison, Comparison):
        lacking = "no comparison was made by %%streamscope yet" if named is None else f"{named[1]!r} is not a comparison"
        raise UsageError(f"{lacking} (name the variable that holds one: %streamscope_assert --runs runs overlap > 0.3)")
    for said in expectations.check(comparison, line if named is None else named[2]):
        print(said)  # noqa: T201


def _metrics(session: Session, event: SimpleNamespace) -> list[str]:
    """Return completions of a word in a condition: the metrics, and the engines that stand before them."""
    from streamscope_widgets import expectations

    engine, dot, _ = event.symbol.rpartition(".")
    engines = [f"{name}." for name in session.latest or ()]
    return [f"{engine}{dot}{name}" for name in expectations.metric_names()] + ([] if dot else ["--runs", *engines])


def _matcher(words: Mapping[str, Words]) -> Matcher:
    """Return the completer of our magics' lines, in IPython's terms: Python's names have no place there, so they are left out."""
    from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

    @context_matcher(identifier=MATCHER)  # type: ignore[untyped-decorator]
    def matches(context: CompletionContext) -> SimpleMatcherResult:
        line, word = context.text_until_cursor, context.token
        command = line.lstrip().partition(" ")[0]
        found = words[command](SimpleNamespace(text_until_cursor=line, symbol=word)) if command in words and word != command else []
        return {"completions": [SimpleCompletion(text) for text in found if text.startswith(word)], "suppress": True}

    made: Matcher = matches
    return made
