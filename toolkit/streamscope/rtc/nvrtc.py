"""Compilation by NVRTC, which needs no GPU and no driver: one translation unit at a time, nothing kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.rtc.source import KernelSource

OPTIONS = ("--std=c++17",)
"""What NVRTC is told besides the architecture."""


def compile_unit(code: str, name: str, architecture: str) -> tuple[bytes | None, str]:
    """Compile a translation unit; return its machine code, None where NVRTC rejected it, and NVRTC's log.

    Raises
    ------
    CompilationError
        NVRTC failed for another reason than the source, for example an unknown architecture.
    NoDeviceError
        NVRTC is not installed.
    """
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
    """Return the error for a source that NVRTC rejected: with its log, and the source with numbered lines."""
    return CompilationError(f"kernel {source.name!r} did not compile for {architecture}:\n{log}\n{_numbered(source.code)}")


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return NVRTC's version, for example ``"13.0"``.

    Raises
    ------
    NoDeviceError
        NVRTC is not installed.
    """
    major, minor = _nvrtc().nvrtcVersion()[1:]
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise NoDeviceError(f"NVRTC cannot be loaded: {error}", hint="pip install 'streamscope[cuda13]' (or cuda12)") from None
    return nvrtc


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
    return "\n".join(f"{number:>4} | {line}" for number, line in enumerate(code.splitlines(), start=1))
