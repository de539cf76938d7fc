"""The reason for a choice, as one paragraph that rests on numbers."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.advising.choice import Candidate, Standing
from streamscope.advising.elimination import MARGIN
from streamscope.trace.trace import DeviceInfo
from streamscope.words import format_us


def reason(candidates: Sequence[Candidate], rounds: int, device: DeviceInfo) -> str:
    """Say why the first of some candidates was chosen.

    Parameters
    ----------
    candidates : sequence of Candidate
        The chosen one first.
    rounds : int
        In how many rounds it ran.
    device : DeviceInfo
    """
    chosen, *others = candidates
    slower = sorted((one for one in others if one.standing is Standing.SLOWER and one.ratio), key=_ratio)
    sentences = [
        _fastest(chosen, slower[:1], rounds, exact=device.exact),
        _listed("Then: ", [f"{one.engine} ({_ratio(one):.2f}×)" for one in slower[1:]]),
        *(_tie(one, chosen.engine) for one in others if one.standing in (Standing.NO_FASTER, Standing.UNDECIDED)),
        _listed("Ruled out: ", [f"{one.engine} ({one.why})" for one in others if one.standing is Standing.RULED_OUT]),
        "These times are simulated, not measured." if device.simulated else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _ratio(candidate: Candidate) -> float:
    return candidate.ratio.median if candidate.ratio else float("inf")


def _fastest(chosen: Candidate, following: Sequence[Candidate], rounds: int, *, exact: bool) -> str:
    makespan_us = chosen.makespan_ns.median / 1e3 if chosen.makespan_ns else float("nan")
    count = f"{rounds} rounds" if rounds > 1 else "one round"
    head = f"{chosen.engine} takes {format_us(makespan_us)} µs (median of {count})"
    for other in following:
        if other.ratio is not None:
            interval = f"{other.ratio.low:.2f} to {other.ratio.high:.2f}× in {other.ratio.count} paired rounds, {other.ratio.basis}"
            noise = "" if exact else f" ({interval})"
            return f"{head}; {other.engine}, the next, takes {other.ratio.median:.2f}× as long{noise}."
    return f"{head}."


def _tie(candidate: Candidate, chosen: str) -> str:
    if candidate.standing is Standing.UNDECIDED:
        count = candidate.ratio.count if candidate.ratio else 0
        return f"{candidate.engine} cannot be told apart from it in {count} rounds, and {chosen} is simpler."
    told = f"{candidate.engine} is not faster by more than {MARGIN * 100:g} %"
    return f"{told}, and {chosen} is simpler." if candidate.against == chosen else f"{told} than {candidate.against}, which is slower."


def _listed(head: str, parts: Sequence[str]) -> str:
    return f"{head}{', '.join(parts)}." if parts else ""
