"""Programs that read files for the server: one for each request, and one that stays for each long trace that somebody looks at."""

from __future__ import annotations

import asyncio
import json
import mmap
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tornado import web

MOST_AT_ONCE = 2
"""Files that are read at one time, each by a program of its own; others wait."""
MOST_KEPT = 3
"""Long traces that are kept in memory at one time."""
MOST_KEPT_BYTES = 2 << 30
"""Memory that the programs with these traces hold together. The one that was asked last stays, however much it holds."""
LONGEST_S = 600.0
"""A program that needs longer for an answer, as on a disk that hangs, is ended."""
IDLE_S = 600.0
"""A program that nobody asked anything for so long comes to an end; whoever asks again has the file read again."""


Work = tuple[Path, int | tuple[str, ...] | None]
"""A file or folder, and the number of the GPU that is looked at, None for all and where there is no choice; or the files of ranks."""


class Reader:
    """A program that reads one file and answers questions about it.

    ``question``: the first question.
    """

    def __init__(self, path: Path, name: str, question: Mapping[str, Any]) -> None:
        # -P: the folder in which the server was started may hold a numpy.py.
        command = [sys.executable, "-P", "-m", "streamscope_widgets.lab.document", str(path), name, json.dumps(question)]
        self.name = name
        """The reader's name for it."""
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
        """Wait for an answer."""
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

    @property
    def resident_bytes(self) -> int:
        """Its memory now, in bytes; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
        except (OSError, IndexError):
            return 0

    async def told(self, answer: Callable[[], bytes]) -> bytes:
        """Wait for the result of `ask` or `answer`; a program that nobody waits for any more, or that takes too long, is ended."""
        try:
            async with asyncio.timeout(LONGEST_S):
                return await asyncio.to_thread(answer)
        except TimeoutError:
            self.end()
            raise web.HTTPError(504, f"reading {self.name} took longer than {LONGEST_S:g} s and was given up") from None
        except asyncio.CancelledError:
            self.end()
            raise

    def end(self) -> None:
        """End the program, and free its memory."""
        self.stays = False
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.said):
            with suppress(OSError):  # A question that it did not read.
                if pipe is not None:
                    pipe.close()


@dataclass(eq=False)
class Line:
    """Who asks about one file: one at a time, so that it is read once."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: int = 0
    answered: asyncio.Future[bytes] | None = None
    """Whose turn it is."""
    reads: bool = False
    """Whether the file is read first; a program that has read it answers quickly, and stays."""


class Readers:
    """The programs that stay, the one that was asked last at the end. One that is answering is not among them."""

    def __init__(self) -> None:
        self._kept: dict[Work, Reader] = {}
        self._timers: dict[Work, asyncio.TimerHandle] = {}
        self._lines: dict[Work, Line] = {}
        self._reads = asyncio.Semaphore(MOST_AT_ONCE)

    async def ask(self, path: Path, name: str, question: Mapping[str, Any]) -> bytes:
        """Return the answer to a question about a file, read anew where it is not in memory, or changed.

        Whoever waits may be cancelled. The file is read on as long as others wait for it.
        """
        work = path, tuple(question["files"]) if question.get("files") else question.get("gpu")
        line = self._lines.setdefault(work, Line())
        line.asking += 1
        answer = asyncio.ensure_future(self._answer(line, work, name, question))
        try:
            return await asyncio.shield(answer)
        finally:
            line.asking -= 1
            if line.answered is not answer:
                answer.cancel()
            if not line.asking and line.answered and line.reads:
                line.answered.cancel()
            if not line.asking and not line.lock.locked():
                self._lines.pop(work, None)

    async def _answer(self, line: Line, work: Work, name: str, question: Mapping[str, Any]) -> bytes:
        async with line.lock:
            line.answered = asyncio.current_task()
            try:
                if reader := self._take(work):
                    try:
                        content = await reader.told(partial(reader.ask, question))
                    except web.HTTPError as error:
                        if error.status_code == 504:
                            raise
                    else:
                        if reader.stays and not _changed(content):
                            self._keep(work, reader)
                            return content
                    reader.end()  # It came to an end, or the file is another: it is read anew, which may say why.
                line.reads = True
                async with self._reads:
                    reader = Reader(work[0], name, question)
                    content = await reader.told(reader.answer)
                if reader.stays:
                    self._keep(work, reader)
                return content
            finally:
                line.answered, line.reads = None, False

    def _take(self, work: Work) -> Reader | None:
        """Return the program that reads a file, if there is one. Nobody else ends it until it is kept again."""
        if timer := self._timers.pop(work, None):
            timer.cancel()
        return self._kept.pop(work, None)

    def _keep(self, work: Work, reader: Reader) -> None:
        self.end(work)
        self._kept[work] = reader
        self._timers[work] = asyncio.get_running_loop().call_later(IDLE_S, self.end, work)
        held = 0
        for number, (kept, each) in enumerate(reversed([*self._kept.items()])):
            held += each.resident_bytes
            if number and (number >= MOST_KEPT or held > MOST_KEPT_BYTES):
                self.end(kept)

    def end(self, work: Work) -> None:
        """End the program that reads a file, if there is one."""
        if reader := self._take(work):
            reader.end()


def _changed(content: bytes) -> bool:
    return content[8:].strip() == b'{"changed": true}'
