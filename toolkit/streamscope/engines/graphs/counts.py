"""How a prepared program came by its graphs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphCounts:
    """How often graphs were made and changed.

    Attributes
    ----------
    instantiated : int
        Captured graphs that were instantiated.
    updated : int
        Captured graphs that were applied to one that was there already (``cudaGraphExecUpdate``).
    refusals : tuple of str
        Why updates were refused; each led to an instantiation instead, which counts as one.
    """

    instantiated: int = 0
    updated: int = 0
    refusals: tuple[str, ...] = ()

    @property
    def refused(self) -> int:
        """Number of updates that were refused."""
        return len(self.refusals)

    def after(self, *, updated: bool, refused: str) -> GraphCounts:
        """Return the counts with one more graph; ``refused`` says why an update was not possible, if one was tried."""
        refusals = (*self.refusals, refused) if refused else self.refusals
        return GraphCounts(self.instantiated + (not updated), self.updated + updated, refusals)

    def to_dict(self) -> dict[str, int]:
        """Return the numbers, as a trace keeps them."""
        return {"graphs_instantiated": self.instantiated, "graphs_updated": self.updated, "graph_updates_refused": self.refused}
