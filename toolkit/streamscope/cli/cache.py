"""``streamscope cache``: the compiled kernels that are kept on disk."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import AsJson
from streamscope.cli.terminal import output
from streamscope.words import binary_size

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.kernels.compile.cubin_folder import CubinFile, CubinFolder

_BROKEN = "broken"


@dataclass(frozen=True)
class Share:
    """The part of the cache that one NVRTC made for one architecture."""

    architecture: str
    nvrtc: str
    """Both ``"broken"`` for files that cannot be read; the next compilation replaces them."""
    kernels: int
    files: int
    """Kernels that were compiled together share a file."""
    bytes: int
    used: str
    """When one of its kernels was used last, UTC, ISO 8601."""


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
    if clear:
        _clear(folder, as_json=as_json)
        return
    shares = shares_of(folder.files())
    if as_json:
        typer.echo(json.dumps(_as_json(folder, shares)))
    else:
        _print(output(), folder, shares)


def _clear(folder: CubinFolder, *, as_json: bool) -> None:
    """Remove our files, and say how much of others is left."""
    files, freed = len(folder.files()), folder.clear()
    others = folder.others()
    if as_json:
        typer.echo(json.dumps({"folder": _path(folder), "removed_files": files, "removed_bytes": freed, "left": others}))
        return
    if folder.path is None:
        output().print(f"nothing to remove: {folder.why_none}", soft_wrap=True)
        return
    left = f"; left {_others(others)}" if others else ""
    output().print(f"removed {files:,} {'file' if files == 1 else 'files'}, {freed:,} bytes, from {folder.path}{left}", soft_wrap=True)


def shares_of(files: list[CubinFile]) -> list[Share]:
    """Return the kernels of each NVRTC for each architecture, the largest share first."""
    grouped: dict[tuple[str, str], list[CubinFile]] = defaultdict(list)
    for file in files:
        header = file.header()
        grouped[str(header.get("architecture", _BROKEN)), str(header.get("nvrtc", _BROKEN))].append(file)
    shares = [
        Share(
            architecture,
            nvrtc,
            sum(len(file.paths) for file in each),
            len(each),
            sum(file.bytes for file in each),
            datetime.fromtimestamp(max(file.used_s for file in each), UTC).isoformat(timespec="seconds"),
        )
        for (architecture, nvrtc), each in grouped.items()
    ]
    return sorted(shares, key=lambda share: (-share.bytes, share.architecture, share.nvrtc))


def _as_json(folder: CubinFolder, shares: list[Share]) -> dict[str, object]:
    totals = {key: sum(getattr(share, key) for share in shares) for key in ("kernels", "files", "bytes")}
    content = [asdict(share) for share in shares]
    return {
        "folder": _path(folder),
        "problem": folder.problem() or None,
        **totals,
        "most_bytes": folder.most_bytes,
        "others": folder.others(),
        "nvrtc": _installed(),
        "content": content,
    }


def _path(folder: CubinFolder) -> str | None:
    return None if folder.path is None else str(folder.path)


def _others(count: int) -> str:
    return f"{count:,} {'entry that is not a compiled kernel' if count == 1 else 'entries that are not compiled kernels'}"


def _print(console: Console, folder: CubinFolder, shares: list[Share]) -> None:
    from rich.table import Table

    from streamscope.kernels.compile.cubin_folder import WHERE_ELSE

    problem, others = folder.problem(), folder.others()
    console.print(f"folder  {folder.path or 'none'}", soft_wrap=True)
    used = sum(share.bytes for share in shares)
    console.print(f"size    {binary_size(used)} of at most {binary_size(folder.most_bytes)}; the least recently used goes first")
    console.print(f"NVRTC   {_installed() or 'not installed'}")
    if others:
        console.print(f"others  {_others(others)}", soft_wrap=True)
    console.print()
    if problem:
        console.print(f"New kernels are kept in memory only: {problem} ({WHERE_ELSE}).", soft_wrap=True)
    elif not shares:
        console.print("It is empty.")
    if not shares:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("architecture", "NVRTC", "kernels", "files", "size", "used last (UTC)"):
        table.add_column(heading, justify="left" if heading in ("architecture", "NVRTC") else "right", no_wrap=True)
    for share in shares:
        used_last = share.used[:16].replace("T", " ")
        table.add_row(share.architecture, share.nvrtc, f"{share.kernels:,}", f"{share.files:,}", binary_size(share.bytes), used_last)
    console.print(table)


def _installed() -> str | None:
    """Return the version of NVRTC on this machine, whose kernels are found in the cache; None where there is none."""
    from streamscope.errors import NoDeviceError
    from streamscope.kernels.compile.nvrtc import nvrtc_version

    try:
        return nvrtc_version()
    except NoDeviceError:
        return None
