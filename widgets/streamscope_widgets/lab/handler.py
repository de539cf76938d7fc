"""The address ``streamscope/timeline?path=...`` of a Jupyter server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

MOST_AT_ONCE = asyncio.Semaphore(2)
"""Files that are read at one time, each by a process of its own; others wait."""


async def read_apart(path: Path, name: str, stamp: str) -> bytes:
    """Return what `streamscope_widgets.lab.document.answer` does, made by another process.

    Raises
    ------
    HTTPError
        500: that process came to an end without an answer, as one that needs more memory than there is.
    """
    # -P: the folder in which the server was started may hold a numpy.py.
    command = [sys.executable, "-P", "-m", "streamscope_widgets.lab.document", str(path), name, *filter(None, [stamp])]
    async with MOST_AT_ONCE:
        done = await asyncio.to_thread(subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise web.HTTPError(500, last or f"reading {name} failed with code {done.returncode}", reason="the file could not be read")
    return done.stdout


class TimelineHandler(APIHandler):
    """Reads a file of the server's contents; what may not be read through them may not be read here."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Send a document, its critical paths with ``stamp=``, or a message that says why there is none."""
        name = self.get_query_argument("path")
        content = await read_apart(await self._place(name), name.rpartition("/")[2], self.get_query_argument("stamp", ""))
        self.set_header("Cache-Control", "no-store")
        await self.finish(content, set_content_type="application/octet-stream")

    async def _place(self, name: str) -> Path:
        """Return where a file of the contents lies on the disk; HTTPError 404 where it is none of them."""
        manager: Any = self.contents_manager
        if not hasattr(manager, "_get_os_path"):
            raise web.HTTPError(404, "the server keeps its contents elsewhere than in files")
        place = Path(manager._get_os_path(name.strip("/")))  # noqa: SLF001 — as other extensions: it checks that the root holds the file
        hidden = not manager.allow_hidden and await ensure_async(manager.is_hidden(name))
        if hidden or not await ensure_async(manager.file_exists(name)):
            raise web.HTTPError(404, f"there is no file {name}")
        return place


def add_handler(app: Any) -> None:
    """Add the address to a Jupyter server's application."""
    web_app = app.web_app
    web_app.add_handlers(".*$", [(url_path_join(web_app.settings["base_url"], "streamscope", "timeline"), TimelineHandler)])
