"""Compilation by NVRTC, which needs no GPU and no driver: one translation unit at a time, nothing kept."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from streamscope.arguments import shown
from streamscope.errors import CompilationError, NoDeviceError
from streamscope.kernels.compile.cubin import sections_of
from streamscope.kernels.elementwise.compiler_errors import written_for
from streamscope.kernels.source import KernelSource

OPTIONS = ("--std=c++17",)
"""Options of NVRTC besides the architecture."""
MAPS = Path("/proc/self/maps")
"""Which files this process has mapped."""
_NOTE_HEADER_BYTES = 16
"""Bytes before a build ID in its ELF section: sizes, type, ``"GNU"``."""

INSTALL_HINT = "`make setup` in the clone installs it, or pip install '.[nvrtc]' there; with a GPU, '.[cuda13]' (or cuda12)"


def compile_unit(code: str, name: str, architecture: str) -> tuple[bytes | None, str]:
    """Compile a translation unit; return its machine code, None where NVRTC rejected it, and NVRTC's log."""
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(code.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _log(program)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            hint = "an architecture is called sm_90, for example"
            raise CompilationError(f"NVRTC {nvrtc_version()} does not take the options {b' '.join(options).decode()}:\n{log}", hint=hint)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, log or status.name
        image = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, image))
        return image, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def rejected(source: KernelSource, architecture: str, log: str) -> CompilationError:
    """Return the error for a source that NVRTC rejected: its log, below the user's line where that is known, else with the source."""
    said = f"kernel {source.name!r} did not compile for {architecture}:\n{log}"
    written = written_for(source.name, source.code)
    if written is None:
        return CompilationError(f"{said}\n{_numbered(source.code)}")
    return CompilationError(
        f'ss.elementwise("{written.line}") at {written.place}: {said}', hint="the program's source(*inputs) returns the whole kernel"
    )


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return NVRTC's version, for example ``"13.0"``."""
    major, minor = _nvrtc().nvrtcVersion()[1:]
    return f"{major}.{minor}"


@lru_cache(maxsize=1)
def nvrtc_build() -> str:
    """Identify this NVRTC, for the keys of its output: version and build.

    The build comes from the library that is loaded, so it is the same on all machines that have the same one, in a wheel or with CUDA.
    Where no library can be found, it is the version alone.
    """
    version = nvrtc_version()
    try:
        builds = {_build_of(path) for path in _loaded(version.partition(".")[0])}
    except OSError:  # where there is no /proc, for example
        builds = set()
    return " ".join([version, *sorted(builds)])


@lru_cache(maxsize=1)
def supported_architectures() -> tuple[str, ...]:
    """Return the architectures that this NVRTC compiles for, for example ``"sm_90"``, the oldest first."""
    return tuple(f"sm_{number}" for number in _checked(_nvrtc().nvrtcGetSupportedArchs()))


def checked_architecture(given: object) -> str:
    """Return an architecture that a user named, if this NVRTC compiles for it; else raise a `CompilationError`.

    NVRTC itself takes more: spaces around the name, which would be another key in the cache, and ``compute_90``, of which comes no machine
    code.
    """
    supported = supported_architectures()
    if isinstance(given, str) and given in supported:
        return str(given)
    hint = f"NVRTC {nvrtc_version()} compiles for {', '.join(supported)}"
    raise CompilationError(f"architecture={shown(given)} is unknown to this NVRTC", hint=hint)


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise NoDeviceError(f"NVRTC cannot be loaded: {error}", hint=INSTALL_HINT) from None
    return nvrtc


def _loaded(major: str) -> set[Path]:
    """Return which files this process has NVRTC from: mostly one, but other packages may have loaded their own."""
    maps = MAPS.read_text(encoding="utf-8", errors="replace")
    return {Path(path) for path in re.findall(rf"/.*/libnvrtc\.so\.{major}(?:\.\d+)*$", maps, re.MULTILINE)}


def _build_of(library: Path) -> str:
    """Return the build ID that the linker gave to a library; where it has none, its size and time, which installations do not share."""
    try:
        with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as image:
            # Found as a section: the program header of CUDA 12.8's points elsewhere.
            note = next(section for section in sections_of(image) if section.name == ".note.gnu.build-id")
            return image[note.start + _NOTE_HEADER_BYTES : note.start + note.size].hex()
    except (ValueError, StopIteration, struct.error, IndexError, OverflowError):
        stat = library.stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise CompilationError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def _log(program: Any) -> str:
    nvrtc = _nvrtc()
    log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _numbered(code: str) -> str:
    return "\n".join(f"{number:>4} | {line}" for number, line in enumerate(code.rstrip("\n").split("\n"), start=1))
