"""Compilation by NVRTC, which needs no GPU and no driver."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.rtc.source import KernelSource


@lru_cache(maxsize=4096)
def compile_cubin(source: KernelSource, architecture: str) -> bytes:
    """Compile a kernel to machine code and keep it in memory; the key is the whole source and the architecture.

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
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(source.code.encode(), f"{source.name}.cu".encode(), 0, [], []))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompilationError(f"kernel {source.name!r} did not compile for {architecture}:\n{_log(program)}\n{_numbered(source.code)}")
        cubin = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


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
    return log.rstrip(b"\0").decode(errors="replace")


def _numbered(code: str) -> str:
    return "\n".join(f"{number:>4} | {line}" for number, line in enumerate(code.splitlines(), start=1))
