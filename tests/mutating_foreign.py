"""Damages files of other programs at random, and reads and shows them: ``python -m tests.mutating_foreign '{"kineto": 9}' 0``.

Each case prints one line of JSON. It runs as a process of its own, since a damaged file may end it, keep it for ever or take all memory.
"""

from __future__ import annotations

import gzip
import json
import resource
import signal
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
from tests.formats.databases import nsight, rocpd
from tests.formats.kineto_files import content, dumps, step
from tests.mutating import LONGEST_S, MOST_BYTES, mutated_bytes, mutated_json, peak_bytes

import streamscope as ss
from streamscope.errors import StreamscopeError
from streamscope.trace.trace import TimelineGroup
from streamscope_widgets.payload import encode

VALUES = [None, 0, -1, 1, 0.5, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 1e308, "", "soon", "x" * 200_000, b"\0", b"\xff" * 9, "\ud800"]


def kineto(path: Path) -> None:
    """Write a file as PyTorch's profiler does."""
    path.write_text(dumps(content(step())), encoding="utf-8")


def own(path: Path) -> None:
    """Write a file as `Trace.to_kineto` does."""
    function, inputs = ss.workload("branches").build(size=256)
    run = ss.compare(function, *inputs, engines="dual", device="simulated", progress=False)["dual"]
    run.trace.to_kineto(path.with_suffix(".json")).rename(path)


def xplane(path: Path) -> None:
    """Write a file as JAX's profiler does."""
    path.write_bytes((Path(__file__).parent / "data" / "xplane" / "kernels.xplane.pb").read_bytes())


MAKERS = {"kineto": kineto, "own": own, "nsys": nsight, "rocpd": rocpd, "xplane": xplane}


def mutated_text(random: Random, data: bytes) -> bytes:
    """Return JSON after damage to its bytes, or to what it says."""
    if random.random() < 0.4:
        return mutated_bytes(random, data)
    whole = json.loads(data)
    if random.random() < 0.2:  # as where the clock counts from 1970: such times are read another way
        for event in whole["traceEvents"]:
            if "ts" in event:
                event["ts"] += 1_700_000_000_000_000
    text = mutated_json(random, whole, sealed=False).encode(errors="surrogatepass")
    return gzip.compress(text, 1) if random.random() < 0.1 else text


def mutate_tables(random: Random, path: Path) -> None:
    """Change values, rows, columns or whole tables of a database, which stays one."""
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(random.choice([1, 1, 2, 3, 6])):
            table = random.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            column = random.choice(columns) if columns else "x"
            value = random.choice(VALUES)
            value = "\ufffd" if value == "\ud800" else value
            try:
                match random.randrange(8):
                    case 0 | 1 | 2:
                        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0', (value, random.choice([1, 2, 3])))
                    case 3:
                        connection.execute(f'DELETE FROM "{table}" WHERE rowid % 2 = ?', (random.randrange(2),))
                    case 4:
                        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
                    case 5:
                        connection.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}x"')
                    case 6:
                        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
                    case _:
                        connection.execute(f'DROP TABLE "{table}"')
                        tables.remove(table)
            except sqlite3.Error:
                continue


def damage(kind: str, random: Random, path: Path) -> None:
    """Damage one file."""
    if kind in ("kineto", "own"):
        path.write_bytes(mutated_text(random, path.read_bytes()))
    elif kind == "xplane" or random.random() < 0.5:
        path.write_bytes(mutated_bytes(random, path.read_bytes()))
    else:
        mutate_tables(random, path)


def held(trace: ss.Trace) -> str:
    """Return all that was read, as text."""
    return repr((trace.to_pandas().to_csv(), trace.spans.lanes, trace.info, trace.origins.to_dict()))


def show(trace: ss.Trace, folder: Path) -> None:
    """Measure, show and write a trace in every way there is, and read what was written."""
    found = ss.analysis.summary(trace)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.to_markdown()
    encode([TimelineGroup(trace)])
    assert held(ss.read(trace.to_parquet(folder / "t.parquet"))) == held(trace), "Parquet reads as something else"
    device = json.loads(trace.to_kineto(folder / "t.json").read_bytes())["streamscope"]["device"]
    assert device["kind"] == trace.info.device.kind


def salvaged(path: Path) -> str:
    """Read what is whole in a file that was refused; it is refused again, or shown like any other."""
    try:
        found = ss.read(path, damaged="skip")
    except StreamscopeError:
        return "refused"
    show(found, path.parent)
    return "salvaged"


def outcome(path: Path, known: str) -> str:
    """Read a file and show what it holds, and say in a word what came of it."""
    try:
        found = ss.read(path)
        if held(found) == known:
            return "equal"
        show(found, path.parent)
    except StreamscopeError as error:
        return salvaged(path) if path.name in str(error) else f"does not name the file: {error}"
    except Exception as error:  # noqa: BLE001 — whatever it is, it is none of ours
        return f"{type(error).__name__}: {error}"
    else:
        return "other"


def main(kinds: dict[str, int], first: int) -> None:
    """Try so many cases of each kind and print what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))
    for kind, count in kinds.items():
        with tempfile.TemporaryDirectory() as name:
            whole, damaged = Path(name) / "whole", Path(name) / "damaged"
            MAKERS[kind](whole)
            data = whole.read_bytes()
            whole.rename(damaged)
            known = held(ss.read(damaged))
            for index in range(first, first + count):
                damaged.write_bytes(data)
                damage(kind, Random(f"{kind} {index}"), damaged)
                signal.alarm(LONGEST_S)
                said = outcome(damaged, known)
                signal.alarm(0)
                sys.stdout.write(json.dumps({"kind": kind, "case": index, "outcomes": [said], "peak_bytes": peak_bytes()}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    np.seterr(all="raise")
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
