"""Colours that everything static shares: legible on the light card that pictures and charts bring along, and told apart by most eyes."""

from __future__ import annotations

CARD = "#ffffff"
INK = "#1f2430"
FAINT_INK = "#5b6472"
RULE = "#d9dde3"

HOST_CALL = "#8b93a1"
EVENT_CALL = "#c9a227"
SYNC = "#dcdfe4"
HOST_FUNCTION = "#b5651d"
COPY = "#7a4fb5"
KERNELS = ("#2f6fde", "#1a936f", "#d1495b", "#17a2b8", "#e08e0b", "#8c5383")
"""Cycled through the names of kernels, in the order in which they first run."""

BUSY = "#2f6fde"
OVERLAPPED = "#123a7d"
HOST_WAIT = "#e08e0b"
KERNEL_WAIT = "#f3c677"
OTHER_IDLE = "#cfd4db"
BOX = "#cfe0fb"
