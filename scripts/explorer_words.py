"""Print the explorer's words for every position of every knob: ``python scripts/explorer_words.py > words.txt`` takes three minutes.

Each knob of each ready program moves alone, under each number of streams; and so do dtype and engines. Positions with the same words
stand together. The words about two runs follow, for runs that differ in one knob, in nothing, and in their program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from streamscope.comparing.preview import Preview
from streamscope.engine_entry import ENGINES
from streamscope.workloads import WORKLOADS
from streamscope_widgets.exploring.controls import AS_WRITTEN, AUTO, STREAMS
from streamscope_widgets.exploring.explorer import compared_at_first
from streamscope_widgets.exploring.runs import setting_words
from streamscope_widgets.exploring.subjects import FLOATS, ReadyProgram
from streamscope_widgets.exploring.words import Answer, answer, between, runs_in_a_row

SUBSETS = [chosen for count in range(1, len(ENGINES) + 1) for chosen in combinations(ENGINES, count)]


def main() -> None:
    """Print the words of each program, then those about two runs."""
    for subject in map(ReadyProgram, WORKLOADS.values()):
        print(f"\n# {subject.name}")
        usual = {knob.name: knob.value for knob in subject.knobs}
        for knob in subject.knobs:
            settings = ((value, {**usual, knob.name: value}) for value in knob.values)
            print_words(knob.name, ((f"{value:,}", words) for value, values in settings for words in moved(subject, values)))
        for dtype in FLOATS:
            print_words("dtype", ((dtype, words) for words in moved(subject, usual, dtype)))
        for engines in SUBSETS:
            print_words("engines", ((", ".join(engines), words) for words in moved(subject, usual, engines=engines)))
    print_two_runs()


def moved(
    subject: ReadyProgram, values: Mapping[str, int], dtype: str | None = None, engines: tuple[str, ...] = compared_at_first()
) -> Iterator[tuple[str, Answer]]:
    """Yield the words of a position under each number of streams."""
    try:
        program = subject.outline(values, dtype)
    except Exception as error:  # noqa: BLE001 — the explorer shows it
        yield "any", Answer("(refused)", str(error))
        return
    preview, in_a_row = Preview(program), runs_in_a_row(program)
    for streams in (None, *STREAMS):
        yield str(streams or AUTO), answer(preview.comparison(engines, streams=streams), streams, in_a_row=in_a_row)


def print_words(knob: str, found: Iterator[tuple[str, tuple[str, Answer]]]) -> None:
    """Print words, each with the positions and the numbers of streams that have them."""
    positions: dict[Answer, dict[str, list[str]]] = {}
    for position, (streams, words) in found:
        positions.setdefault(words, {}).setdefault(position, []).append(streams)
    for words, where in positions.items():
        by_streams: dict[str, list[str]] = {}
        for position, allowed in where.items():
            by_streams.setdefault(", ".join(allowed), []).append(position)
        places = "; ".join(f"{knob} {' · '.join(some)} (streams {streams})" for streams, some in by_streams.items())
        print(f"\n{places}\n  Q {words.question}\n  A {words.sentence}\n  B {words.because}")


def print_two_runs() -> None:
    """Print the words about pairs of runs."""
    print("\n# two runs")
    runs = {}
    for name, values in (("branches", {}), ("branches", {"length": 16}), ("branches", {"copies": 1}), ("cnn", {})):
        subject = ReadyProgram(WORKLOADS[name])
        chosen = {knob.name: knob.value for knob in subject.knobs} | values
        settings = {"program": name, "dtype": AS_WRITTEN, "streams": AUTO}
        settings |= {key: setting_words(key, value) for key, value in chosen.items()}
        runs[f"{name} {values or ''}".strip()] = Preview(subject.outline(chosen, None)).comparison(compared_at_first()), settings
    for first, second in [*combinations(runs, 2), ("cnn", "cnn")]:
        (one, ours), (other, theirs) = runs[first], runs[second]
        words = between(one, other, ("run 1", "run 2"), (ours, theirs))
        print(f"\n{first} | {second}\n  Q {words.question}\n  A {words.sentence}\n  B {words.because}")


if __name__ == "__main__":
    main()
