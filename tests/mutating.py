"""Damages saved comparisons and traces at random, and loads and shows them: ``python -m tests.mutating FOLDER '{"parquet": 9}' 0``.

Each case prints one line of JSON. It runs as a process of its own, since a damaged file may end it, keep it for ever or take all memory.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamscope as ss
from streamscope.errors import StreamscopeError
from streamscope.trace import Trace
from streamscope.trace.file_checks import with_digest
from streamscope.trace.spans import COLUMN_DTYPES
from streamscope_widgets.payload import encode

LONGEST_S = 20
MOST_BYTES = 2 << 30
LONE = "\ud800"
EXTREME = [
    None, True, False, 0, -1, 1, 0.5, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 1e18, 1e308, 5e-324, "", "zz", "NaN", LONE, "\0",
    "\x1b[2J", "../evil", "x" * 200_000, [], {}, [None], [[]], [1, "a"], {"a": None}, [0.0] * 3, [1e308] * 6, "simulated", "cuda",
]  # fmt: skip
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "1" + "0" * 5000]
RAW += ["[" * 500 + "]" * 500, "[" * 100_000, '{"a":' * 100_000]
STARTS_NS = [[0], [-7], [2**53], [-(2**53)], [0, 2**52], [-(10**6), -1], range(-5, 5)]


def mutated_bytes(random: Random, data: bytes) -> bytes:
    """Return bytes after one to three changes: bits flipped, ranges zeroed, made random, copied, inserted or lost, the end cut off."""
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        changed = _byte_change(random, changed)
    return bytes(changed)


def _byte_change(random: Random, data: bytearray) -> bytearray:
    if not data:
        return data
    # A Parquet footer is what steers all reading: half of the changes are there.
    low = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little")) if random.random() < 0.5 else 0
    start = random.randrange(low, len(data)) if low < len(data) else 0
    end = min(len(data), start + random.choice([1, 2, 4, 8, 40, 300]))
    other = random.randrange(len(data))
    match random.randrange(9):
        case 0 | 1 | 2:
            data[start] ^= 1 << random.randrange(8)
        case 3:
            data[start:end] = bytes(end - start)
        case 4:
            data[start:end] = random.randbytes(end - start)
        case 5:
            data[start:end] = data[other : other + end - start]
        case 6:
            data[start:start] = data[other : other + end - start]
        case 7:
            del data[start:end]
        case _:
            del data[start:]
    return data


def mutated_json(random: Random, content: dict, *, sealed: bool) -> str:
    """Return a JSON text after one to three changes of what it says; ``sealed`` adds the digest that fits what is left."""
    content, raw = json.loads(json.dumps(content)), {}
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        _json_change(random, content, raw)
    if sealed and not raw:
        content = with_digest({name: value for name, value in content.items() if name != "digest"})
    text = json.dumps(content, indent=random.choice([None, 1]))
    for mark, token in raw.items():
        text = text.replace(f'"{mark}"', token)
    if random.random() < 0.1 and '": ' in text:  # one name twice
        at = random.choice([position for position in range(len(text)) if text.startswith('": ', position)])
        name = text[text.rfind('"', 0, at) : at + 1]
        text = text[: text.rfind('"', 0, at)] + f"{name}: {random.choice(['0', 'null', '[]'])}, " + text[text.rfind('"', 0, at) :]
    return text


def _json_change(random: Random, content: dict, raw: dict[str, str]) -> None:
    inner, key = random.choice([place for place in _places(content) if random.random() < 0.5] or list(_places(content)))
    value = inner[key]
    match random.randrange(8):
        case 0 | 1:
            inner[key] = random.choice(EXTREME)
        case 2:
            raw[f"@@{len(raw)}@@"] = random.choice(RAW)
            inner[key] = f"@@{len(raw) - 1}@@"
        case 3:
            del inner[key]
        case 4 if isinstance(value, int | float) and not isinstance(value, bool):
            inner[key] = random.choice([value + 1, -value, value * 1e3, value * 1e-9, str(value), [value]])
        case 5 if isinstance(value, str):
            inner[key] = random.choice([value + "x", value[:-1], value.upper(), [value], LONE + value, len(value)])
        case 6 if isinstance(inner, dict):
            inner[random.choice([key.upper(), key + "x", "", LONE, "a/b"])] = inner.pop(key)
        case _:
            inner[key] = random.choice([inner[other] for other in (inner if isinstance(inner, dict) else range(len(inner)))])


def _places(value: object) -> list[tuple]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


def mutated_columns(random: Random, path: Path) -> None:
    """Write a trace again, whole, with values that are wrong, or at the limits of what is right."""
    table = pq.read_table(path)
    metadata = table.schema.metadata[b"streamscope"]
    if random.random() < 0.5:
        start_ns = sorted(random.choices(random.choice(STARTS_NS), k=len(table)))
        end_ns = [min(2**53, start + random.choice([0, 0, 1, 10**6])) for start in start_ns]
        for name, values in (("start_ns", start_ns), ("end_ns", end_ns), ("basis", ["derived"] * len(table))):
            table = table.set_column(table.column_names.index(name), name, pa.array(values))
    for column in random.sample(list(COLUMN_DTYPES), random.choice([0, 1, 1, 2, 3])):
        values = table[column].to_pylist()
        extreme = [0, 1, -1, 2**53, -(2**53), 2**62, 2**63 - 1, -(2**63), 300, 40_000, None, "kernel", "x", 0.5]
        picked = random.sample(range(len(values)), random.choice([1, len(values) // 2, len(values)]))
        wrong = random.choice(extreme)
        for row in picked:
            values[row] = wrong
        try:
            table = table.set_column(table.column_names.index(column), column, pa.array(values, random.choice([None, table[column].type])))
        except (pa.ArrowException, OverflowError, TypeError):
            continue
    layout = {name: value for name, value in json.loads(metadata).items() if name != "columns"}
    text = mutated_json(random, layout, sealed=True) if random.random() < 0.3 else json.dumps(with_digest(layout))
    pq.write_table(table.replace_schema_metadata({b"streamscope": text.encode(errors="surrogatepass")}), path)


def trace_in(folder: Path) -> Path:
    """Return the file of a trace in the folder of a comparison."""
    return next(folder.glob("sync*.parquet"))


def damage(kind: str, random: Random, folder: Path) -> None:
    """Damage one file of a saved comparison."""
    described, trace = folder / "comparison.json", trace_in(folder)
    if kind == "parquet":
        trace.write_bytes(mutated_bytes(random, trace.read_bytes()))
    elif kind == "columns":
        mutated_columns(random, trace)
    elif kind == "comparison" and random.random() < 0.3:
        described.write_bytes(mutated_bytes(random, described.read_bytes()))
    else:
        text = mutated_json(random, json.loads(described.read_text(encoding="utf-8")), sealed=kind == "values")
        described.write_text(text, encoding="utf-8", errors="surrogatepass")


def held(found: Trace | ss.Comparison) -> str:
    """Return all that was loaded, as text that equals that of what is equal."""
    if isinstance(found, Trace):
        return repr(([getattr(found.spans, column).tolist() for column in COLUMN_DTYPES], found.spans.names, found.spans.lanes, found.info))
    runs = [(run.engine, run.makespans_ns.tolist(), run.max_abs_error, run.tolerance, held(run.trace)) for run in found.values()]
    return repr((found.program, found.device, found.settings, found.checked_against, runs))


def show(found: Trace | ss.Comparison, folder: Path) -> None:
    """Show a trace or a comparison in every way there is."""
    if isinstance(found, Trace):
        found.to_pandas()
        return
    texts = [repr(found), found._repr_html_(), found.verdict, found.assessment]
    assert all(map(str, texts))
    json.dumps(found.to_dict(), allow_nan=False)
    found.to_pandas()
    encode(found.groups())
    found.report(folder / "report.html")


def outcomes(folder: Path, known: set[str]) -> list[str]:
    """Load and show a damaged trace, and the comparison with it, and say of each in a word or two what came of it.

    What equals one that was shown already is not shown again.
    """
    said = []
    for load in (lambda: Trace.from_parquet(trace_in(folder)), lambda: ss.load_comparison(folder)):
        try:
            found = load()
            if held(found) not in known:
                show(found, folder)
            said.append("equal" if held(found) in known else "other")
        except StreamscopeError:
            said.append("refused")
        except Exception as error:  # noqa: BLE001 — whatever it is, it is none of ours
            said.append(f"{type(error).__name__}: {error}")
    return said


def peak_bytes() -> int:
    """Return the most memory that this process has held; ``getrusage`` would count that of the one which started it, too."""
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(kib) * 1024


def main(base: Path, kinds: dict[str, int], first: int) -> None:
    """Try so many cases of each kind and print what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_BYTES, 4 * MOST_BYTES))
    whole = Trace.from_parquet(trace_in(base)), ss.load_comparison(base)
    for each in whole:
        show(each, base)
    known = {held(each) for each in whole}
    for kind, index in ((kind, index) for kind, count in kinds.items() for index in range(first, first + count)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "saved"
            shutil.copytree(base, folder)
            damage(kind, Random(f"{kind} {index}"), folder)
            signal.alarm(LONGEST_S)
            said = outcomes(folder, known)
            signal.alarm(0)
        sys.stdout.write(json.dumps({"kind": kind, "case": index, "outcomes": said, "peak_bytes": peak_bytes()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    np.seterr(all="raise")
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
