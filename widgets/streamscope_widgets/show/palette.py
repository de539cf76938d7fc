"""Colours that all views share, each for light surroundings and for dark ones.

An operator, or a kind of host call, has the same colour in still pictures as in the live timeline: the hues, the mixing
and the shares below are those of ``palette.js``, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

RGB = tuple[float, float, float]

CARD = "#ffffff"
INK = "#1f2430"
FAINT_INK = "#5b6472"
RULE = "#d9dde3"
ON_ANY, FAINT_ON_ANY = "#777b82", "rgba(128,132,140,0.28)"
"""Ink and rules that read on white and on black alike, for charts that cannot know the theme: 4.3 to 1 on both."""

COPY = "#7a4fb5"

BOUNDARY = "#b5651d"
"""A line between two regions."""

FASTER, SLOWER = "#1a936f", "#d1495b"

BUSY = "#6a9ef5"
OVERLAPPED = "#1f55c4"
HOST_WAIT = "#e08e0b"
LAUNCH = "#b3541e"
KERNEL_WAIT = "#f3c677"
OTHER_IDLE = "#cfd4db"
HIDDEN, EXPOSED = "#8fd0c4", "#d6336c"
"""Communication beside a kernel that computes, and without one."""
BOX = "rgba(106,158,245,0.35)"

ON_LIGHT, ON_DARK = "#1f2431", "#fffffe"
"""Ink on light and on dark bars: no theme changes it, as none changes the bars. So it is not in `DARK`."""
ON_OVERLAPPED = "#fffffd"
"""Ink on the bars of `OVERLAPPED`, which stand out by darkness in light surroundings and by light in dark ones."""

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
"""Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), told apart under every common form of colour blindness."""
GROUNDS = (("#ffffff", "#1c2128"), ("#14161a", "#e4e7eb"))
"""Ground and ink, light and dark, that the kinds of host calls are mixed from."""
HOST_SHARES = {"launch": 0.3, "graph_launch": 0.5, "event": 0.72, "sync": 0.19, "host": 0.45, "compile": 0.45, "api": 0.4, "range": 0.42}
"""How much of its tint, and of the ink, is in the colour of a kind; the rest is ground."""
HOST_TINTS: Mapping[str, RGB] = {"host": (176, 148, 92), "compile": (140, 110, 190), "range": (40, 165, 150), "api": (225, 60, 105)}
_WHITE, _BLACK = (255, 255, 255), (20, 22, 26)


def operator_colour(rank: int) -> str:
    """Return the colour of the operator that takes the ``rank``-th most time: the plain hues first, then lighter and darker turns."""
    softened = _mix(_parse(HUES[rank % len(HUES)]), _WHITE, 0.88)
    turn = rank // len(HUES) % 3
    return _css(softened if turn == 0 else _mix(softened, _WHITE, 0.55) if turn == 1 else _mix(softened, _BLACK, 0.6))


def host_colour(kind: str, *, dark: bool = False) -> str:
    """Return the colour of a kind of call on the host: a grey or a tinted grey, so never an operator's."""
    ground, ink = map(_parse, GROUNDS[dark])
    tint = _mix(HOST_TINTS[kind], ink, 0.5) if kind in HOST_TINTS else ink
    return _css(_mix(tint, ground, HOST_SHARES[kind]))


def _parse(colour: str) -> RGB:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def _mix(one: RGB, other: RGB, share: float) -> RGB:
    red, green, blue = (a * share + b * (1 - share) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _css(colour: RGB) -> str:
    return "#" + "".join(f"{int(part + 0.5):02x}" for part in colour)


HOST = {kind: host_colour(kind) for kind in HOST_SHARES}
HOST_CALL, EVENT_CALL, SYNC, HOST_FUNCTION = HOST["launch"], HOST["event"], HOST["sync"], HOST["host"]
KERNELS = tuple(operator_colour(rank) for rank in range(3 * len(HUES)))

DARK = {
    CARD: "#121212",
    INK: "#e8eaee",
    FAINT_INK: "#a3abb8",
    RULE: "#30353c",
    OVERLAPPED: "#c9dcff",
    ON_OVERLAPPED: ON_LIGHT,
    OTHER_IDLE: "#868d98",
    HIDDEN: "#3d8f83",
    EXPOSED: "#ff6b98",
    **{colour: host_colour(kind, dark=True) for kind, colour in HOST.items()},
}
"""Dark counterparts of light colours. Colours that read on both are not here."""


def dark_style(drawing: str, scope: str = "") -> str:
    """Return CSS that gives the elements of a drawing their dark colours, where the page that shows it is dark and is not printed.

    ``drawing``: SVG whose ``fill`` and ``stroke`` are attributes; only the colours that it has get a rule.
    ``scope``: a selector that comes before each rule, with a blank behind it.
    """
    rules = [
        f'{scope}[{name}="{light}"]{{{name}:{dark}}}'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
        if f'{name}="{light}"' in drawing
    ]
    return f"@media screen and (prefers-color-scheme: dark){{{''.join(rules)}}}" if rules else ""
