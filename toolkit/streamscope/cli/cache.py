"""``streamscope cache``: the compiled kernels that are kept on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamscope.cli.parameters import AsJson
from streamscope.cli.terminal import output
from streamscope.words import binary_size, counted

if TYPE_CHECKING:
    from streamscope.kernels.compile.cubin_folder import CubinFolder


def cache(
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all compiled kernels; other files stay.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the compiled kernels that are kept on disk, or remove them.

    The folder is "kernels" in STREAMSCOPE_CACHE_DIR or else in the user's cache folder. The machine code in it is run as it is, so it is
    not used if others can write to it.
    """
    from streamscope.kernels.compile.kernel_cache import kernel_cache

    folder = kernel_cache().folder
    content, lines = _cleared(folder) if clear else _held(folder)
    if as_json:
        typer.echo(json.dumps({"folder": None if folder.path is None else str(folder.path), **content}))
    else:
        output().print("\n".join(lines), soft_wrap=True)


def _held(folder: CubinFolder) -> tuple[dict[str, Any], list[str]]:
    """Return what the cache holds, as JSON values and as lines of text."""
    from streamscope.kernels.compile.cubin_folder import WHERE_ELSE

    files, others, problem, nvrtc = folder.files(), folder.others(), folder.problem(), _installed()
    held = {"kernels": sum(len(file.paths) for file in files), "files": len(files), "bytes": sum(file.bytes for file in files)}
    content = {"problem": problem or None, **held, "most_bytes": folder.most_bytes, "others": others, "nvrtc": nvrtc}
    lines = [
        f"folder   {folder.path or 'none'}",
        f"kernels  {counted(held['kernels'], 'kernel')} in {counted(held['files'], 'file')}",
        f"size     {binary_size(held['bytes'])} of at most {binary_size(folder.most_bytes)}; the least recently used goes first",
        f"NVRTC    {nvrtc or 'not installed'}",
        *([f"others   {_others(others)}"] if others else []),
        *(["", f"New kernels are kept in memory only: {problem} ({WHERE_ELSE})."] if problem else []),
    ]
    return content, lines


def _cleared(folder: CubinFolder) -> tuple[dict[str, Any], list[str]]:
    """Remove the compiled kernels; return what went, as JSON values and as lines of text."""
    files, freed, others = len(folder.files()), folder.clear(), folder.others()
    content = {"removed_files": files, "removed_bytes": freed, "left": others}
    if folder.path is None:
        return content, [f"nothing to remove: {folder.why_none}"]
    left = f"; left {_others(others)}" if others else ""
    return content, [f"removed {counted(files, 'file')}, {freed:,} bytes, from {folder.path}{left}"]


def _others(count: int) -> str:
    return counted(count, "entry that is not a compiled kernel", "entries that are not compiled kernels")


def _installed() -> str | None:
    """Return NVRTC's version; None where it is missing."""
    from streamscope.errors import NoDeviceError
    from streamscope.kernels.compile.nvrtc import nvrtc_version

    try:
        return nvrtc_version()
    except NoDeviceError:
        return None
