"""The server's part of the JupyterLab extension: it reads a trace or a comparison by path and sends the timeline's columns.

So a file does not go through the browser. The browser's part is ``widgets/labextension/lab.js``.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "streamscope_widgets.lab"}]


def _load_jupyter_server_extension(app: Any) -> None:
    """Add our address to a Jupyter server."""
    from streamscope_widgets.lab.handler import add_handler

    add_handler(app)
