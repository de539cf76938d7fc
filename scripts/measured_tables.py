"""The tables of measured figures in docs/, made from the committed data: between `<!-- measured: NAME -->` and `<!-- end -->`.

    python scripts/measured_tables.py     writes them anew

`tests/project/test_numbers.py` says which tables are old.
"""

from __future__ import annotations

import re

from page_tables import captured, engines, headlines, networks, ranks, recorders, several_gpus, simulation
from page_tables.parts import ROOT

PAGES = ("accuracy.md", "headlines.md", "metrics.md", "networks.md", "performance.md", "record.md", "your-code.md")
PLACE = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLES = {
    name: made
    for of in (captured, engines, headlines, networks, ranks, recorders, several_gpus, simulation)
    for name, made in of.TABLES.items()
}
"""What makes each table, by its name in the page."""


def page_with_tables(text: str) -> str:
    """Return a page with its tables made anew."""
    return PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}{place[3]}", text)


def main() -> None:
    """Write all tables anew."""
    for name in PAGES:
        path = ROOT / "docs" / name
        path.write_text(page_with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
