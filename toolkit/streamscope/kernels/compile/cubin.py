"""Machine code of one or several kernels: resources of each, and the file format.

Resources are read from its ELF sections, so no GPU is needed. A file can tell whether it is whole: a magic word, a checksum of all
that follows, a header, the machine code.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from mmap import mmap

_SYMBOLS = 2
"""Type of the ELF section with the symbols' names."""
_VALUE_FOLLOWS, _REGISTERS, _FRAME_BYTES = 4, 0x2F, 0x11
"""In ``.nv.info``: an attribute with a value of some bytes; its numbers of two attributes, whose value is (symbol, number)."""
_RESERVED_SHARED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024
"""On Hopper and later, each block's shared memory begins with 1 KiB of CUDA's own, which the kernel's section includes."""
_ELF64 = b"\x7fELF\x02"
FORMAT = 1
MAGIC = b"SSCUBIN" + bytes([FORMAT])
CHECKSUM_END = len(MAGIC) + 32
HEADER_START = CHECKSUM_END + 4


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel."""

    code_bytes: int
    """Machine code."""
    registers: int
    """Of each thread."""
    shared_bytes: int
    """Static shared memory of each block."""
    stack_bytes: int
    """Local memory of each thread, spilled registers among it."""


@dataclass(frozen=True)
class Cubin:
    """Machine code that was compiled together."""

    image: bytes
    """An ELF file, as the driver loads it."""
    architecture: str
    nvrtc: str
    """Target architecture, and version of the compiler."""
    compile_ns: int
    """How long NVRTC took for all of it."""
    kernels: int
    """How many kernels were compiled together."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the machine code."""
        return hashlib.sha256(self.image).hexdigest()

    @cached_property
    def resources(self) -> Mapping[str, KernelResources]:
        """Resources of each kernel, by name."""
        return resources_of(self.image)


@dataclass(frozen=True)
class Section:
    """A section of an ELF file: its name and type, and where its content lies."""

    name: str
    kind: int
    start: int
    size: int


def packed(cubin: Cubin) -> bytes:
    """Return a cubin as the content of a file."""
    fields = asdict(cubin)
    image: bytes = fields.pop("image")
    header = json.dumps(fields).encode()
    body = len(header).to_bytes(4, "little") + header + image
    return MAGIC + hashlib.sha256(body).digest() + body


def unpacked(content: bytes) -> Cubin | None:
    """Return the cubin in the content of a file; None where it is none of ours, truncated or changed."""
    checksum = checksum_of(content)
    if checksum is None or hashlib.sha256(content[CHECKSUM_END:]).digest() != checksum:
        return None
    end = HEADER_START + int.from_bytes(content[CHECKSUM_END:HEADER_START], "little")
    return Cubin(image=content[end:], **json.loads(content[HEADER_START:end]))


def checksum_of(start: bytes) -> bytes | None:
    """Return the checksum that stands in the first bytes of a file; None where it is none of ours, or too short."""
    return start[len(MAGIC) : CHECKSUM_END] if start.startswith(MAGIC) and len(start) >= CHECKSUM_END else None


def resources_of(image: bytes) -> dict[str, KernelResources]:
    """Return the resources of each kernel in a cubin, by name; empty where it is not a whole 64-bit ELF file.

    The layout of ``.nv.info`` is not documented; it has been this since CUDA 5, and a test compares it with the driver's answer.
    """
    try:
        return _resources(image, list(sections_of(image)))
    except (struct.error, IndexError):
        return {}


def _resources(image: bytes, sections: list[Section]) -> dict[str, KernelResources]:
    sizes = {section.name: section.size for section in sections}
    symbols = _symbols(image, sections)
    numbers: dict[int, dict[str, int]] = {_REGISTERS: {}, _FRAME_BYTES: {}}
    for section in sections:
        if section.name == ".nv.info":
            for attribute, symbol, number in _attributes(image[section.start : section.start + section.size]):
                if attribute in numbers and symbol < len(symbols):
                    numbers[attribute][symbols[symbol]] = number
    reserved = _RESERVED_BYTES if _RESERVED_SHARED in sizes else 0
    return {
        name: KernelResources(
            sizes[f".text.{name}"], registers, max(0, sizes.get(f".nv.shared.{name}", 0) - reserved), numbers[_FRAME_BYTES].get(name, 0)
        )
        for name, registers in numbers[_REGISTERS].items()
        if f".text.{name}" in sizes
    }


def sections_of(image: bytes | mmap) -> Iterator[Section]:
    """Yield the sections of a 64-bit ELF file; none where it is not such a file."""
    if image[:5] != _ELF64:
        return
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, table + index * size) for index in range(count)]
    for name, kind, _, _, start, length in headers:
        yield Section(_text(image, headers[names][4] + name), kind, start, length)


def _symbols(image: bytes, sections: list[Section]) -> list[str]:
    table = next((section for section in sections if section.kind == _SYMBOLS), None)
    names = next((section for section in sections if section.name == ".strtab"), None)
    if table is None or names is None:
        return []
    return [_text(image, names.start + struct.unpack_from("<I", image, at)[0]) for at in range(table.start, table.start + table.size, 24)]


def _attributes(info: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield attribute, symbol and number of the attributes whose value is two numbers of 32 bits."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _VALUE_FOLLOWS:
            continue  # what looks like a size is the value
        if size == 8:
            yield attribute, *struct.unpack_from("<II", info, at)
        at += size


def _text(image: bytes | mmap, start: int) -> str:
    return image[start : image.find(b"\0", start)].decode(errors="replace")
