"""Programs that read files for the server: one for each request, and one that stays for each long trace that somebody looks at."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tornado import web

MOST_AT_ONCE = asyncio.Semaphore(2)
"""Files that are read at one time, each by a program of its own; others wait."""
MOST_KEPT = 3
"""Long traces that are kept in memory at one time."""
IDLE_S = 600.0
"""A program that nobody asked anything for so long comes to an end; whoever asks again has the file read again."""


class Reader:
    """A program that reads one file and answers questions about it.

    Parameters
    ----------
    path : Path
    name : str
        What the reader calls it.
    question : mapping
        What it answers first.
    """

    def __init__(self, path: Path, name: str, question: Mapping[str, Any]) -> None:
        # -P: the folder in which the server was started may hold a numpy.py.
        command = [sys.executable, "-P", "-m", "streamscope_widgets.lab.document", str(path), name, json.dumps(question)]
        self.name, self.lock = name, asyncio.Lock()
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 — closed by `end`; a pipe that nobody reads would stop it once it is full.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)  # noqa: S603 — ours
        self.stays = False

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """Ask one more question, and wait for its answer."""
        assert self.process.stdin is not None
        with suppress(OSError):  # It came to an end, which `answer` tells.
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> bytes:
        """Wait for an answer.

        Raises
        ------
        HTTPError
            500: the program came to an end without one, as one that needs more memory than there is.
        """
        assert self.process.stdout is not None
        self.stays = self.process.stdout.readline() == b"more\n"
        length = self.process.stdout.read(8)
        content = self.process.stdout.read(int.from_bytes(length, "little"))
        if self.stays:
            return content
        code = self.process.wait()
        self.said.seek(0)
        said = self.said.read()
        self.end()
        if code or len(length) < 8:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise web.HTTPError(500, last or f"reading {self.name} failed with code {code}", reason="the file could not be read")
        return content

    def end(self) -> None:
        """End the program, and free what it held."""
        self.stays = False
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.said):
            with suppress(OSError):  # A question that it did not read.
                if pipe is not None:
                    pipe.close()


class Readers:
    """The programs that stay, the one that was asked last at the end."""

    def __init__(self) -> None:
        self._kept: dict[Path, Reader] = {}
        self._timers: dict[Path, asyncio.TimerHandle] = {}

    async def ask(self, path: Path, name: str, question: Mapping[str, Any]) -> bytes:
        """Return the answer to a question about a file, read anew where it is not in memory, or changed.

        Raises
        ------
        HTTPError
            500: it could not be read.
        """
        if reader := self._kept.get(path):
            content = b""
            with suppress(web.HTTPError):  # It came to an end: the file is read anew, which may say why.
                async with reader.lock:
                    content = await asyncio.to_thread(reader.ask, question) if reader.stays else b""
            if reader.stays and not _changed(content):
                self._keep(path, reader)
                return content
            self.end(path)
        async with MOST_AT_ONCE:
            reader = Reader(path, name, question)
            content = await asyncio.to_thread(reader.answer)
        if reader.stays:
            self._keep(path, reader)
        return content

    def _keep(self, path: Path, reader: Reader) -> None:
        if self._kept.get(path) is not reader:
            self.end(path)
        self._kept.pop(path, None)
        self._kept[path] = reader
        if timer := self._timers.pop(path, None):
            timer.cancel()
        self._timers[path] = asyncio.get_running_loop().call_later(IDLE_S, self.end, path)
        for oldest in [*self._kept][:-MOST_KEPT]:
            self.end(oldest)

    def end(self, path: Path) -> None:
        """End the program that reads a file, if there is one."""
        if timer := self._timers.pop(path, None):
            timer.cancel()
        if reader := self._kept.pop(path, None):
            reader.end()


def _changed(content: bytes) -> bool:
    return content[8:].strip() == b'{"changed": true}'
