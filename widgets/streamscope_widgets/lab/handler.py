"""The address ``streamscope/timeline?path=...`` of a Jupyter server."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from streamscope_widgets.lab.readers import Readers

READERS = Readers()


class TimelineHandler(APIHandler):
    """Reads a file of the server's contents; a file that they refuse is refused here."""

    auth_resource = "contents"
    asking: asyncio.Future[bytes] | None = None

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Send a document, the answer to a question, with ``ask=``, or a message that says why there is none."""
        name = self.get_query_argument("path")
        try:
            question = json.loads(self.get_query_argument("ask", "{}"))
            json.dumps(question)
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict):
            raise web.HTTPError(400, "ask= must be a JSON object, nested less than some hundred deep")
        if not isinstance(question.get("gpu"), int | None):
            raise web.HTTPError(400, "the number of a GPU in ask= must be a whole number")
        place = await self._place(name)
        self.asking = asyncio.ensure_future(READERS.ask(place, name.rpartition("/")[2], question))
        with suppress(asyncio.CancelledError):  # Nobody waits any more.
            content = await self.asking
        if self.asking.cancelled():
            return
        self.set_header("Cache-Control", "no-store")
        await self.finish(content, set_content_type="application/octet-stream")

    def on_connection_close(self) -> None:
        """Ask no more for whoever closed the tab."""
        if self.asking:
            self.asking.cancel()

    async def _place(self, name: str) -> Path:
        """Return where a file of the contents lies on the disk; HTTPError 404 where it is none of them."""
        manager: Any = self.contents_manager
        if not hasattr(manager, "_get_os_path"):
            raise web.HTTPError(404, "the server does not keep its contents in files")
        place = Path(manager._get_os_path(name.strip("/")))  # noqa: SLF001 — as other extensions: it checks that the root holds the file
        hidden = not manager.allow_hidden and await ensure_async(manager.is_hidden(name))
        if hidden or not await ensure_async(manager.file_exists(name)):
            raise web.HTTPError(404, f"there is no file {name}")
        return place


def add_handler(app: Any) -> None:
    """Add the address to a Jupyter server's application."""
    web_app = app.web_app
    web_app.add_handlers(".*$", [(url_path_join(web_app.settings["base_url"], "streamscope", "timeline"), TimelineHandler)])
