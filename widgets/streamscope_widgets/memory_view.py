"""What fills the memory as static HTML: the peak, what held it, what would have to go, and the curve under the streams."""

from __future__ import annotations

from streamscope.analysis.memory import MemoryUse
from streamscope.results.views import View
from streamscope.words import shortened
from streamscope_widgets.code_view import LONGEST_NAME, code_table
from streamscope_widgets.payload import as_groups
from streamscope_widgets.show.html import Html, above, block, fill, lead, small
from streamscope_widgets.still_timeline import timeline_image, timeline_svg

MEANINGS = {
    "defined at": "File and line where the function is defined. The profiler does not write the line that ran.",
    "file:line": "The line that took the memory.",
    "modules": "How many modules of the class there are.",
    "allocations": "Allocations that were held at the peak.",
    "MiB": "Their bytes together, in MiB of 1,048,576. The table is in this order, and adds up to the peak.",
    "share": "Of the peak.",
}
HEADING = "What held the peak of the memory"


def memory_html(found: MemoryUse) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    head = above(shortened(found.title, 3 * LONGEST_NAME)), lead(found.answer)
    return block(*head, code_table(found, MEANINGS), *map(small, found.notes), timeline_image(as_groups([found.trace]), found.answer))


def memory_parts(found: MemoryUse, *, told: bool = False) -> tuple[Html, ...]:
    """Return what held the peak: a sentence, unless that was ``told`` above, the table, and the notes."""
    return Html() if told else fill("<p>{}</p>", found.answer), code_table(found, MEANINGS), *map(small, found.notes)


MEMORY = View(of="memory", html=memory_html, pictures={"timeline": lambda found: timeline_svg(as_groups([found.trace]))})
