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
    """Return the content of the cache, as JSON values and as lines of text."""
    from streamscope.kernels.compile.cubin_folder import WHERE_ELSE

    files, problem = folder.files(), folder.problem()
    held = {"kernels": sum(len(file.paths) for file in files), "files": len(files), "bytes": sum(file.bytes for file in files)}
    lines = [
        f"folder   {folder.path or 'none'}",
        f"kernels  {counted(held['kernels'], 'kernel')} in {counted(held['files'], 'file')}",
        f"size     {binary_size(held['bytes'])} of at most {binary_size(folder.most_bytes)}; the least recently used goes first",
        *(["", f"New kernels are kept in memory only: {problem} ({WHERE_ELSE})."] if problem else []),
    ]
    return {"problem": problem or None, **held, "most_bytes": folder.most_bytes}, lines


def _cleared(folder: CubinFolder) -> tuple[dict[str, Any], list[str]]:
    """Remove the compiled kernels; return their number and bytes, as JSON values and as lines of text."""
    files, freed = len(folder.files()), folder.clear()
    content = {"removed_files": files, "removed_bytes": freed}
    if folder.path is None:
        return content, [f"nothing to remove: {folder.why_none}"]
    return content, [f"removed {counted(files, 'file')}, {freed:,} bytes, from {folder.path}"]
