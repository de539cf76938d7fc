"""Compilation by NVRTC, which needs no GPU and no driver: one source to the machine code of one GPU architecture."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.rtc.source import KernelSource

OPTIONS = ("--std=c++17",)
"""What every source is compiled with, besides the architecture."""


def compile_cubin(source: KernelSource, architecture: str) -> bytes:
    """Return a kernel's machine code, from the cache if it is there; see `compile_kernels` for many kernels.

    Parameters
    ----------
    source : KernelSource
    architecture : str
        For example ``"sm_90"``.

    Raises
    ------
    CompilationError
        NVRTC rejected the source.
    NoDeviceError
        NVRTC is not installed.
    """
    from streamscope.rtc.compilation import compile_kernels  # which in turn needs what is below

    done = compile_kernels([source], architecture, workers=1)
    done.raise_failures()
    return done.kernels[source].cubin


def translate(code: str, title: str, architecture: str) -> tuple[bytes | None, str]:
    """Compile one translation unit, whatever is in it; nothing is kept.

    Parameters
    ----------
    code : str
        CUDA C++.
    title : str
        What the log calls the source.
    architecture : str

    Returns
    -------
    bytes or None
        Machine code (a cubin); None where NVRTC rejected the source.
    str
        NVRTC's log.

    Raises
    ------
    CompilationError
        NVRTC failed for a reason that is not in the source.
    NoDeviceError
        NVRTC is not installed.
    """
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(code.encode(), title.encode(), 0, [], []))
    try:
        options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _log(program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, log or status.name
        cubin = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def rejection(source: KernelSource, architecture: str, log: str) -> CompilationError:
    """Return the error for a kernel that NVRTC rejected: its name, the log, and the source with line numbers."""
    return CompilationError(f"kernel {source.name!r} did not compile for {architecture}:\n{log}\n{_numbered(source.code)}")


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return the version of NVRTC, for example ``"13.0"``.

    Raises
    ------
    NoDeviceError
        NVRTC is not installed.
    """
    major, minor = _version(_nvrtc())
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        _version(nvrtc)
    except (ImportError, RuntimeError) as error:
        raise NoDeviceError(f"NVRTC cannot be loaded: {error}", hint="pip install 'streamscope[cuda13]' (or cuda12)") from None
    return nvrtc


def _version(nvrtc: Any) -> tuple[int, int]:
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise CompilationError(f"NVRTC failed: {status.name}", hint="`streamscope doctor` shows which libraries are installed")
    return values[0] if values else None


def _log(program: Any) -> str:
    nvrtc = _nvrtc()
    log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace").rstrip()


def _numbered(code: str) -> str:
    return "\n".join(f"{number:>4} | {line}" for number, line in enumerate(code.splitlines(), start=1))
