"""Declared dependencies: which pieces of work need which, by their declared reads and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamscope.engines.happens_before import Work, WorkKey, key_of
from streamscope.program.operation import Program

_BLOCK = 4096


def hazards(earlier: Work, later: Work) -> dict[int, str]:
    """Return the variables that order two pieces of work, each with why: read after write (RAW), write after read (WAR), or WAW."""
    found = dict.fromkeys(set(earlier.reads) & set(later.writes), "WAR")
    found |= dict.fromkeys(set(earlier.writes) & set(later.writes), "WAW")
    found |= dict.fromkeys(set(earlier.writes) & set(later.reads), "RAW")
    return found


@dataclass(frozen=True)
class Dependencies:
    """The pieces of a program's work in program order, with the dependencies inside one run."""

    work: list[Work]
    needs: list[list[int]]
    """For each piece, the earlier ones that it directly needs; the others follow from these."""
    number: dict[WorkKey, int] = field(init=False)
    """Index in ``work`` of each piece."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", {key_of(work): index for index, work in enumerate(self.work)})

    @staticmethod
    def of(program: Program) -> Dependencies:
        """Find the dependencies of a program: each read needs the last write, each write the last write and all reads since."""
        work: list[Work] = [work for operation in program.operations for work in operation.works]
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = defaultdict(list)
        needs: list[list[int]] = []
        for index, piece in enumerate(work):
            needed = {writer[variable] for variable in (*piece.reads, *piece.writes) if variable in writer}
            for variable in set(piece.writes):
                needed.update(readers.pop(variable, ()))
                writer[variable] = index
            for variable in set(piece.reads) - set(piece.writes):
                readers[variable].append(index)
            needs.append(sorted(needed))
        return Dependencies(work, needs)

    def connected(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return those of some pairs (earlier, later) that a path of dependencies connects.

        One bit for each source says whether a piece comes after it; the sources are taken in blocks, so that memory stays in bounds.
        """
        asked: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for pair in pairs:
            asked[pair[0] // _BLOCK].append(pair)
        found: set[tuple[int, int]] = set()
        for block, wanted in asked.items():
            first = block * _BLOCK
            after = self._after(range(first, min(first + _BLOCK, len(self.work))))
            found.update((source, target) for source, target in wanted if target > source and after[target - first] >> (source - first) & 1)
        return found

    def _after(self, sources: range) -> list[int]:
        """Return, for each piece from the first source on, a bit for each source that it is or comes after."""
        after: list[int] = []
        for index in range(sources.start, len(self.work)):
            bits = 1 << (index - sources.start) if index in sources else 0
            for needed in self.needs[index]:
                if needed >= sources.start:
                    bits |= after[needed - sources.start]
            after.append(bits)
        return after
