"""The addresses ``streamscope/timeline?path=``, ``streamscope/source?file=`` and ``streamscope/bundle?name=`` of a Jupyter server."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from streamscope_widgets.lab.readers import Readers

READERS = Readers()
BUNDLES = Path(__file__).parents[1] / "static"
MOST_FOLDERS, MOST_TOLD = 20, 3
"""Folders of a path that are looked into, and names that a refusal lists."""


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
        files = question.pop("files", [])
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise web.HTTPError(400, "the files in ask= must be a list of names")
        place = await place_of(self.contents_manager, name, folders=question.pop("job", False) is True)
        if files:
            question["files"] = [str(await place_of(self.contents_manager, file)) for file in files]
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


class SourceHandler(APIHandler):
    """Tells under which name the contents have a file of source code, so that JupyterLab can open it."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Send ``{"path": name}``, or ``refused`` with the reason.

        ``file=`` is a path as a trace has it, perhaps of another machine. It is sought in the folder of ``beside=`` and those above it.
        """
        file, manager = self.get_query_argument("file"), self.contents_manager
        names = names_of(getattr(manager, "root_dir", ""), file, self.get_query_argument("beside", ""))
        for name in names:
            with suppress(web.HTTPError):
                await place_of(manager, name)
                await self.finish({"path": name})
                return
        tried = f": there is no {' or '.join(names[:MOST_TOLD])}" if names else ""
        await self.finish({"refused": f"{file} is not below the folder that JupyterLab shows{tried}"})


class BundleHandler(APIHandler):
    """Sends what draws timelines. It belongs to this package, and so to what `TimelineHandler` sends."""

    auth_resource = "contents"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Send ``timeline.js`` or ``details.js``, which browsers keep by version, ``v=``."""
        name = self.get_query_argument("name")
        if name not in ("timeline.js", "details.js") or not (BUNDLES / name).is_file():
            raise web.HTTPError(404, f"there is no {name}")
        self.set_header("Cache-Control", "private, max-age=31536000")
        await self.finish((BUNDLES / name).read_bytes(), set_content_type="text/javascript")


def names_of(root_dir: str, file: str, beside: str) -> list[str]:
    """Return the names that the contents may have for a file of source code, the likeliest first.

    Where its whole path is nowhere, as that of another machine, it is sought by the end of it: with a folder at least, since a bare name
    would be a guess.
    """
    root, sought = Path(root_dir or "/").expanduser().resolve(), PurePath(file)
    parts = [part for part in sought.parts if part != sought.anchor]
    tails = [sought, *(PurePath(*parts[first:]) for first in range(0 if sought.anchor else 1, len(parts) - 1))]
    around = PurePath(beside.strip("/")).parents[:MOST_FOLDERS]
    found = dict[str, None]()
    for tail in tails[:MOST_FOLDERS]:
        for folder in around or [PurePath()]:
            with suppress(OSError, ValueError):
                found[(root / folder / tail).resolve().relative_to(root).as_posix()] = None  # An absolute path is itself.
    return list(found)


async def place_of(manager: Any, name: str, *, folders: bool = False) -> Path:
    """Return where a file of the contents lies on the disk, or a folder; HTTPError 404 where it is none of them."""
    if not hasattr(manager, "_get_os_path"):
        raise web.HTTPError(404, "the server does not keep its contents in files")
    place = Path(manager._get_os_path(name.strip("/")))  # noqa: SLF001 — as other extensions: it checks that the root holds the file
    hidden = not manager.allow_hidden and await ensure_async(manager.is_hidden(name))
    there = await ensure_async(manager.file_exists(name)) or (folders and await ensure_async(manager.dir_exists(name)))
    if hidden or not there:
        raise web.HTTPError(404, f"there is no file {name}")
    return place


def add_handler(app: Any) -> None:
    """Add the addresses to a Jupyter server's application."""
    web_app = app.web_app
    for name, handler in (("timeline", TimelineHandler), ("source", SourceHandler), ("bundle", BundleHandler)):
        web_app.add_handlers(".*$", [(url_path_join(web_app.settings["base_url"], "streamscope", name), handler)])
