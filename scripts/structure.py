"""Prints the structure of the source tree in figures, as the table of docs/decisions/fewer-rooms.md has them.

python scripts/structure.py [FOLDER]
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

Imports = Mapping[str, set[str]]
_EXPORTED = re.compile(r"^from .* import (\w+) as \1", re.MULTILINE)


def modules_of(tree: Path) -> dict[str, Path]:
    """Return the Python files of the two packages, by the names of their modules."""
    found = {}
    for base in ("toolkit", "widgets"):
        for path in sorted((tree / base).rglob("*.py")):
            parts = path.relative_to(tree / base).with_suffix("").parts
            if parts[0].startswith("streamscope"):
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports_of(modules: Mapping[str, Path]) -> tuple[Imports, Imports]:
    """Return what each module imports when it runs, at its top or later, and what it imports for types as well."""
    running: dict[str, set[str]] = {name: set() for name in modules}
    typed: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node, for_types in _imports(ast.parse(path.read_text(encoding="utf-8")), for_types=False):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            named = {f"{origin}{alias.name}" for alias in node.names}
            wanted = {each if each in modules else origin.removesuffix(".") for each in named}
            for each in wanted & modules.keys() - {name}:
                typed[name].add(each)
                if not for_types:
                    running[name].add(each)
    return running, typed


def _imports(node: ast.AST, *, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, for_types
        else:
            yield from _imports(child, for_types=for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)))


def largest_circle(imports: Imports) -> int:
    """Return how many modules reach each other by imports, at most."""
    reached = {name: set(others) for name, others in imports.items()}
    for middle in imports:
        for others in reached.values():
            if middle in others:
                others.update(reached[middle])
    return max((sum(name in reached[other] for other in others) for name, others in reached.items() if name in others), default=1)


def package_of(module: str) -> str:
    """Return the folder of a module in its package."""
    return ".".join(module.split(".")[:2]) if module.startswith("streamscope.") else module.split(".", maxsplit=1)[0]


VERBS = {"compare": ("comparing.compare",), "read": ("formats.read", "trace.read"), "parallelise": ("parallelising.parallelise",)}
"""For each verb, where it is defined, now or before."""
_DOOR = re.compile(r"^[A-Z]+(: Door\[\w+\])? = Door[\[(]", re.MULTILINE)
_WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)


def led_into(imports: Imports, module: str) -> set[str]:
    """Return the modules that a module imports, those that they import, and so on, with itself."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports[name]
    return found


class Words(NamedTuple):
    """A docstring, and its first and last line in the file."""

    text: str
    first: int
    last: int


def docstrings_of(tree: ast.Module) -> list[Words]:
    """Return the docstrings of a file: of the module, classes and functions, and those below the names of fields and constants."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for before, each in pairwise([None, *node.body]):
                may_be = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                if may_be and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
                    found.append(Words(each.value.value, each.lineno, each.end_lineno or each.lineno))
    return found


def line_counts(text: str, docstrings: Iterable[Words]) -> Counter[str]:
    """Count the lines of code, of docstrings and of comments that stand alone; a line counts once, and blank ones do not."""
    words = {row for each in docstrings for row in range(each.first, each.last + 1)}
    code: set[int] = set()
    comments: set[int] = set()
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return Counter(code=len(code - words), docstrings=len(words), comments=len(comments - code))


def public_names(tree: ast.Module) -> int:
    """Count a module's functions, classes and constants without an underscore."""
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    defined += [target.id for target in targets if isinstance(target, ast.Name)]
    return sum(not name.startswith("_") for name in set(defined))


def rows(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield the figures, each after what it is."""
    modules = modules_of(tree)
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules.items()}
    toolkit = [name for name in modules if name.split(".")[0] == "streamscope"]
    lengths = [len(texts[name].splitlines()) for name in toolkit]
    running, typed = imports_of(modules)
    importers = Counter(other for others in typed.values() for other in others)
    pairs = {(package_of(name), package_of(other)) for name, others in running.items() for other in others}
    stub = (tree / "toolkit" / "streamscope" / "__init__.pyi").read_text(encoding="utf-8")
    trees = {name: ast.parse(texts[name]) for name in texts}
    docstrings = {name: docstrings_of(trees[name]) for name in texts}
    lines = sum((line_counts(texts[name], docstrings[name]) for name in toolkit), Counter())
    named = sum(public_names(trees[name]) for name in toolkit)
    exported = sum(len(_EXPORTED.findall(path.read_text(encoding="utf-8"))) for path in (tree / "toolkit").rglob("*.pyi"))
    whats = [_WHAT.search(each.text) is not None for name in modules for each in docstrings[name]]
    yield "files of the toolkit", f"{len(toolkit)}"
    for kind in ("code", "docstrings", "comments"):
        yield f"lines of the toolkit: {kind}", f"{lines[kind]:,}"
    yield "names without an underscore, for each exported one", f"{named:,} for {exported}, {named / exported:.1f}"
    yield 'docstrings of both packages with the word "what"', f"{sum(whats):,} of {len(whats):,}, {sum(whats) / len(whats):.0%}"
    for verb, homes in VERBS.items():
        reached = led_into(running, next(f"streamscope.{home}" for home in homes if f"streamscope.{home}" in modules))
        length = sum(len(texts[name].splitlines()) for name in reached)
        yield f"modules and lines that `ss.{verb}` leads into", f"{len(reached)}, {length:,}"
    yield "doors: registries that other packages add to", f"{sum(len(_DOOR.findall(text)) for text in texts.values())}"
    yield "lines of the toolkit", f"{sum(lengths):,}"
    yield "median and longest file, in lines", f"{statistics.median(lengths):.0f}, {max(lengths)}"
    yield "modules of the toolkit that one other module imports", f"{sum(importers[name] == 1 for name in toolkit)}"
    yield "largest circle of imports", f"{largest_circle(running)}"
    yield "the same with imports for types", f"{largest_circle(typed)}"
    yield "packages that import each other", f"{sum((b, a) in pairs for a, b in pairs if a < b)}"
    yield "names in `ss.`", f"{len(_EXPORTED.findall(stub))}"
    for what, mark in (("files that write HTML tables", "<table"), ("files that write SVG", "<svg")):
        yield what, f"{sum(mark in text for text in texts.values())}"


if __name__ == "__main__":
    for what, figure in rows(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]):
        print(f"| {what} | {figure} |")
