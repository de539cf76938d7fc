"""The options of ``%%streamscope``: parsed, explained and completed from the table that the command line has, too."""

from __future__ import annotations

import argparse
import keyword
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from types import SimpleNamespace

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from streamscope.options import COMPARE_OPTIONS, DEVICE, ENGINES, FUSE, RECORDER, REPORT, SAVE, SET, WORKLOAD, Option

OPTIONS = (*COMPARE_OPTIONS, FUSE, WORKLOAD, SET, SAVE, REPORT)
FLAGS = (*(option.flag for option in OPTIONS), "--output", "--timeline", "--no-timeline", "--help")
VALUED = frozenset({"-o", "--output", *(option.flag for option in OPTIONS if not option.switch)})
DESCRIPTION = (
    "Run the operations of this cell under several engines and compare them. The arrays that the cell reads are the inputs, its last "
    "expression is the result; what it assigns stays inside. With the word record first, any cell is recorded: %%streamscope record --help."
)
RECORD = "record"
RECORDS = "Run this cell and record what it does with CUDA, whichever library it uses: kernels, copies, calls, named ranges."
RECORD_FLAGS = ("--name", "--gpu", "--last", "--stacks", "--memory", "--timeline", "--no-timeline", "--help")
MOST_GPUS = 1023

USAGE_OF_ASSERT = """usage: %streamscope_assert [--runs NAME] CONDITION [and CONDITION ...]

Fail this cell, with the measured values, unless the last comparison is as expected:

    %streamscope_assert overlap > 0.3
    %streamscope_assert graph.makespan_us < 120 and graph-dual.overlap >= 30 %

A condition is about the fastest engine, or about the one whose name stands before it. --runs names the variable with the comparison."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the magic's line, with its help."""
    made = MagicArgumentParser("%%streamscope", description=DESCRIPTION, formatter_class=argparse.HelpFormatter)  # type: ignore[no-untyped-call]
    for option in OPTIONS:
        _add(made, option)
    made.add_argument("-o", "--output", metavar="NAME", type=_identifier, help="Assign the comparison to this variable.")
    _add_common(made, "Show the live timelines below the comparison.")
    return made


def record_parser() -> argparse.ArgumentParser:
    """Return the parser of the line of ``%%streamscope record``, behind the word ``record``."""
    made = MagicArgumentParser("%%streamscope record", description=RECORDS, formatter_class=argparse.HelpFormatter)  # type: ignore[no-untyped-call]
    made.add_argument("--name", "-o", metavar="NAME", type=_identifier, help="What the trace is called, and the variable that keeps it.")
    made.add_argument(
        "--gpu", metavar="NUMBER", type=partial(_whole, least=0, most=MOST_GPUS), help="Whose work is kept; by default that of all GPUs."
    )
    made.add_argument("--last", metavar="SECONDS", type=float, help="Keep only so many seconds before the cell ends.")
    made.add_argument(
        "--stacks", action="store_true", help="Also record which line of yours made each launch call. It needs Python 3.12 or later."
    )
    made.add_argument("--memory", action="store_true", help="Also record which memory is held, from when to when.")
    _add_common(made, "Show the live timeline below the summary.")
    return made


def parsed(line: str) -> argparse.Namespace:
    """Parse a line into options."""
    return _parsed(parser(), line, FLAGS, "%streamscope --help")


def parsed_record(line: str) -> argparse.Namespace:
    """Parse the line of ``%%streamscope record``, as `parsed` does."""
    return _parsed(record_parser(), line, RECORD_FLAGS, "%streamscope record --help")


def _parsed(made: argparse.ArgumentParser, line: str, flags: Sequence[str], lists: str) -> argparse.Namespace:
    chosen, left = made.parse_known_args(_split(line))
    if left:
        # Without the dashes, which would make all of them alike.
        near = get_close_matches(left[0].partition("=")[0].lstrip("-"), [flag.lstrip("-") for flag in flags], n=1)
        hint = f"did you mean --{near[0]}?" if near else f"{lists} lists the options"
        raise UsageError(f"unknown option {left[0]!r} ({hint})")
    return chosen


def _add_common(made: argparse.ArgumentParser, timeline: str) -> None:
    made.add_argument("--timeline", action=argparse.BooleanOptionalAction, default=True, help=timeline)
    made.add_argument("-h", "--help", action="store_true", help="Show this message.")


def completions(event: SimpleNamespace) -> list[str]:
    """Return completions of the word at the cursor: an option, or a value of the option before it, where these are known."""
    words = event.text_until_cursor.split()[1:]
    typed = "" if event.text_until_cursor[-1:].isspace() else words.pop() if words else ""
    before = words[-1] if words else ""
    if words[:1] == [RECORD]:
        return [] if before in ("--name", "-o", "--gpu", "--last") else list(RECORD_FLAGS)
    flag, sign, _ = typed.partition("=")
    wanted = flag if sign else before
    return _values(wanted, words) if wanted in VALUED else [*FLAGS, *([] if words else [RECORD])]


def _values(flag: str, words: Sequence[str]) -> list[str]:
    from streamscope import engine_entry
    from streamscope.workloads import WORKLOADS

    if flag == ENGINES.flag:
        return [*engine_entry.ENGINES]
    if flag == SET.flag and WORKLOAD.flag in words[:-1]:
        chosen = WORKLOADS.get(words[words.index(WORKLOAD.flag) + 1])
        return [f"{name}=" for name in chosen.settings] if chosen is not None else []
    return {DEVICE.flag: list(DEVICE.choices), RECORDER.flag: list(RECORDER.choices), WORKLOAD.flag: list(WORKLOADS)}.get(flag, [])


def _split(line: str) -> list[str]:
    """Split a line as a shell does; IPython would leave the quotes in ``--memory-limit '2 GiB'``."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the options {line!r} cannot be split: {error} (close the quotes)") from None


def _add(made: argparse.ArgumentParser, option: Option) -> None:
    if option.switch:
        made.add_argument(option.flag, action="store_true", help=option.help)
        return
    kind: Callable[[str], object] = partial(_accepted, option=option) if option.numbered else str
    if option.least is not None and option.most is not None:
        kind = partial(_whole, least=option.least, most=option.most)
    choices = option.choices if option.choices and not option.numbered else None
    default = "" if option.default is None else f" [default: {option.default}]"
    made.add_argument(
        option.flag,
        action="append" if option.many else "store",
        default=option.default,
        type=kind,
        choices=choices,
        metavar=None if choices else "|".join(option.choices) or option.metavar,
        help=option.whole_help + default,
    )


def _accepted(text: str, option: Option) -> str:
    if not option.accepts(text):
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, option.choices))})")
    return text


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def _identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a variable")
    return text
