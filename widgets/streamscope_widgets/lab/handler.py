"""The address ``streamscope/timeline?path=...`` of a Jupyter server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from streamscope.errors import StreamscopeError
from streamscope_widgets.lab.document import document, paths_of, refusal


class TimelineHandler(APIHandler):
    """Reads a file of the server's contents; what may not be read through them may not be read here."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Send a document, its critical paths with ``part=paths``, or a message that says why there is none."""
        name = self.get_query_argument("path")
        path = await self._place(name)
        made = paths_of if self.get_query_argument("part", "") == "paths" else document
        try:
            content = await asyncio.to_thread(made, path, name.rpartition("/")[2])
        except StreamscopeError as error:
            # Where the server's files lie is the server's matter.
            content = refusal(str(error).replace(f"{path.parent}/", ""))
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Cache-Control", "no-store")
        await self.finish(content)

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
