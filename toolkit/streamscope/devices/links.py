"""Links: how the GPUs of a device reach each other's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LinkKind = Literal["nvlink", "pcie", "host"]
LINK_NAMES: Mapping[LinkKind, str] = {"nvlink": "NVLink", "pcie": "PCIe", "host": "host memory"}
"""Names for readers."""


@dataclass(frozen=True)
class Links:
    """Links between the GPUs of one device.

    Attributes
    ----------
    kinds : mapping of (int, int) to str
        For each ordered pair of GPUs ``"nvlink"`` or ``"pcie"``, where the first reaches the memory of the second; else ``"host"``: copies
        between them go through the host's memory.
    """

    kinds: Mapping[tuple[int, int], LinkKind] = field(default_factory=dict)

    def peer(self, a: int, b: int) -> LinkKind:
        """Return the link from one GPU to another.

        Examples
        --------
        >>> from streamscope.devices.links import Links
        >>> links = Links({(0, 1): "nvlink", (1, 0): "nvlink"})
        >>> links.peer(0, 1)
        'nvlink'
        """
        return self.kinds[a, b]
