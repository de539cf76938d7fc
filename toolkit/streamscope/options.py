"""The options that the command line and the cell magic share: names, defaults, help and limits, stated once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamscope import engine_entry
from streamscope.device_entry import AUTO, DEVICES, MOST_GPUS
from streamscope.doors import Door
from streamscope.recorder_entry import RECORDERS


@dataclass(frozen=True)
class Option:
    """One option."""

    flag: str
    default: str | int | None
    help: str
    metavar: str
    first: tuple[str, ...] = ()
    """Choices beside the entries of a door."""
    door: Door[Any] | None = None
    """Registry whose names are choices, too; without either, anything is."""
    several: bool = False
    """It takes several names of the registry, separated by commas."""
    least: int | None = None
    most: int | None = None
    """Its smallest and its largest value, if it is a whole number."""
    switch: bool = False
    """It stands without a value."""
    many: bool = False
    """It may be repeated."""
    numbered: bool = False
    """A number may stand behind a name: ``cuda:1``."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Choices, with those that other packages add; empty for anything, and for a list of several."""
        return () if self.several else (*self.first, *(self.door or ()))

    @property
    def whole_help(self) -> str:
        """Help, and the names that a list may hold. It loads other packages."""
        return f"{self.help} There are {', '.join(self.door or ())}." if self.several else self.help

    @property
    def name(self) -> str:
        """Name of the Python argument."""
        return self.flag.removeprefix("--").replace("-", "_")

    def accepts(self, value: str) -> bool:
        """Tell whether a value is one of the choices; anything is where there are none."""
        name, colon, number = value.partition(":")
        return not self.choices or value in self.choices or (self.numbered and bool(colon) and number.isdecimal() and name in self.choices)

    def on_a_line(self, value: object) -> str:
        """Return how a command line, or the magic's, says it: ``--device simulated``."""
        return f"{self.flag} {shlex.quote(str(value))}"


DEVICE = Option(
    "--device",
    "auto",
    "Where to run; auto is CUDA where there is a GPU, else simulated.",
    "DEVICE",
    first=(AUTO,),
    door=DEVICES,
    numbered=True,
)
GPUS = Option(
    "--gpus",
    None,
    "So many GPUs, or those with these numbers (0,2); a workload over several is made for as many. By default as many as it needs.",
    "N",
)
ENGINES = Option(
    "--engines",
    None,
    "Engines to compare, separated by commas; all by default.",
    "NAME,NAME…",
    door=engine_entry.ENGINES,
    several=True,
)
REPEATS = Option(
    "--repeats",
    30,
    "Timed runs of each engine, at most 200,000; a simulated device repeats itself exactly and is run once.",
    "N",
    least=1,
    most=200_000,
)
STREAMS = Option(
    "--streams",
    None,
    "Compute streams of the engines that take several, 1 to 128; by default 2, and up to 12 of captured code.",
    "N",
    least=1,
    most=128,
)
RECORDER = Option(
    "--recorder",
    "auto",
    "What records the run that is shown; auto is CUDA events, checked by CUPTI; a simulated device has its own log.",
    "RECORDER",
    door=RECORDERS,
)
LEDGER = Option("--ledger", False, "Measure what each recorder costs, too.", "", switch=True)
NAME = Option("--name", None, "What the comparison is called; by default as the program is.", "NAME")
FUSE = Option("--fuse", None, "Make one kernel of neighbouring element-wise operations.", "", switch=True)
WORKLOAD = Option("--workload", None, "Compare this ready program in place of a cell.", "NAME")
SET = Option("--set", None, "A setting of the workload; may be repeated.", "NAME=VALUE", many=True)
SAVE = Option("--save", None, "Write comparison.json and a Parquet trace of each engine to this folder.", "DIR")
REPORT = Option("--report", None, "Write the report to this file: .html, which works offline, .pdf or .md.", "FILE")

COMPARE_OPTIONS = (ENGINES, DEVICE, GPUS, STREAMS, REPEATS, RECORDER, LEDGER, NAME)
"""Those that `ss.compare` has, too."""


_MOST_DIGITS = 4
"""Digits of a GPU's number."""


def setting_values(settings: Iterable[str] | None, wrong: Callable[[str], Exception]) -> dict[str, str]:
    """Return settings of a workload by name, from ``NAME=VALUE``; where one lacks its name or the sign, raise the error of ``wrong``."""
    values = {}
    for setting in settings or ():
        name, sign, value = setting.partition("=")
        if not sign or not name.strip():
            raise wrong(f"{setting!r} is not NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def gpus_of(text: str | None, wrong: Callable[[str], Exception]) -> int | list[int] | None:
    """Return the value of ``--gpus``: a number of GPUs, or, of ``0,2``, a list of their numbers; else raise the error of ``wrong``."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.removeprefix("-").isdecimal() for part in parts):
        raise wrong(f"{text!r} is neither a number of GPUs nor a list of their numbers, such as 0,2")
    if any(len(part) > _MOST_DIGITS or part.startswith("-") for part in parts) or (len(parts) == 1 and not 1 <= int(text) <= MOST_GPUS):
        raise wrong(f"{text!r} is out of range: 1 to {MOST_GPUS}, or a list of GPUs, such as 0,2")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise wrong(f"{text!r} has a GPU twice: name each once")
    return numbers if len(numbers) > 1 else numbers[0]


def hint_on_a_line(hint: str | None) -> str | None:
    """Return a hint with the options in it as a command line, or the magic's, says them: ``--device simulated`` for ``device='simulated'``.

    Errors from deep inside do not know who asked.
    """
    if hint is None:
        return None
    by_name = {option.name: option for option in COMPARE_OPTIONS}
    said = re.compile(rf"\b({'|'.join(by_name)})=('[^']*'|[0-9]+)")
    return said.sub(lambda found: by_name[found[1]].on_a_line(found[2].strip("'")), hint)
