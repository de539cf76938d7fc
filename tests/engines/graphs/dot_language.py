"""A strict reader of the part of DOT that we write, after the grammar at https://graphviz.org/doc/info/lang.html."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|->|[{}\[\];=,]|[A-Za-z_][A-Za-z_0-9]*|\d+)', re.DOTALL)


@dataclass
class Dot:
    """What was read: attributes by node, edges, and the nodes of each cluster by its label."""

    name: str = ""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    clusters: dict[str, list[str]] = field(default_factory=dict)


def read_dot(text: str) -> Dot:
    """Read a digraph; raises ValueError where it is not one."""
    tokens, position = [], 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"no token at {text[position : position + 20]!r}")
        tokens.append(match.group().strip())
        position = match.end()
    return _Reader(tokens).graph()


def unquoted(token: str) -> str:
    """Return what a quoted label shows: escapes resolved as Graphviz does in labels."""
    if not token.startswith('"'):
        return token
    return re.sub(r"\\(.)", lambda match: "\n" if match.group(1) == "n" else match.group(1), token[1:-1], flags=re.DOTALL)


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.dot = Dot()

    def take(self, *expected: str) -> str:
        token = self.tokens.pop(0)
        if expected and token not in expected:
            raise ValueError(f"{token!r} instead of one of {expected}")
        return token

    def graph(self) -> Dot:
        self.take("digraph")
        self.dot.name = unquoted(self.take())
        self.take("{")
        self.statements([])
        if self.tokens:
            raise ValueError(f"{self.tokens} after the end")
        return self.dot

    def statements(self, members: list[str]) -> str:
        """Read up to the closing brace; return the label that was set."""
        label = ""
        while (first := self.take()) != "}":
            if first == "subgraph":
                name, inner = self.take(), []
                if not name.startswith("cluster"):
                    raise ValueError(f"subgraph {name!r} is no cluster")
                self.take("{")
                self.dot.clusters[self.statements(inner)] = inner
                continue
            after = self.take("=", "->", "[")
            if after == "=":
                value = self.take()
                label = unquoted(value) if first == "label" else label
            elif after == "->":
                self.dot.edges.append((first, self.take()))
            elif first == "node":
                self.attributes()
            else:
                if first in self.dot.nodes:
                    raise ValueError(f"node {first} is there twice")
                self.dot.nodes[first] = self.attributes()
                members.append(first)
            self.take(";")
        return label

    def attributes(self) -> dict[str, str]:
        found = {}
        while True:
            name = self.take()
            self.take("=")
            found[name] = unquoted(self.take())
            if self.take(",", "]") == "]":
                return found
