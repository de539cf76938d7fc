"""One rule of colours: still pictures and the live timeline give an operator the same one, and text reads on every ground."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from streamscope.trace import TimelineGroup
from streamscope_widgets.charts import STRETCHES
from streamscope_widgets.payload import encode, operator_order
from streamscope_widgets.show import palette
from streamscope_widgets.still_timeline import HOST_COLOURS, timeline_svg

SCRIPT = """
import {{ parseColour }} from "{folder}/colours.js";
import {{ hostColours, operatorColour }} from "{folder}/palette.js";
const hex = (rgb) => "#" + rgb.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("");
const kinds = (ground, ink) => Object.fromEntries(
  Object.entries(hostColours(parseColour(ink), parseColour(ground))).map(([kind, rgb]) => [kind, hex(rgb)]));
console.log(JSON.stringify({{ operators: Array.from({{ length: 21 }}, (_, rank) => hex(operatorColour(rank))),
  hosts: {grounds}.map((pair) => kinds(...pair)) }}));
"""
JUPYTERLAB_GROUNDS = ("#ffffff", "#111111")


def luminance(colour):
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_still_pictures_and_the_live_timeline_have_one_rule(node_path, repository):
    script = SCRIPT.format(folder=(repository / "widgets/frontend/src").as_uri(), grounds=json.dumps(palette.GROUNDS))
    run = subprocess.run([node_path, "--input-type=module", "--eval", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["operators"] == list(palette.KERNELS)
    light, dark = told["hosts"]
    assert light == palette.HOST
    assert dark == {kind: palette.DARK[colour] for kind, colour in palette.HOST.items()}


def test_the_header_and_the_still_picture_put_operators_in_one_order(five_engines):
    groups = [TimelineGroup(trace) for trace in five_engines(50).values()]
    order = operator_order(groups)
    assert order == ("matmul", "softmax", "multiply", "bias add", "relu")  # by length; the last two are equal, and come as they came
    header = encode(groups).header
    assert tuple(header["names"][code] for code in header["order"]) == order
    svg = timeline_svg(groups)
    assert [svg.index(palette.KERNELS[rank]) for rank in range(5)] == sorted(svg.index(palette.KERNELS[rank]) for rank in range(5))


def test_spans_left_out_of_a_report_change_no_colour(five_engines):
    groups = [TimelineGroup(trace) for trace in five_engines(50).values()]
    whole, part = (encode(groups, keep).header for keep in (None, [1] * 5))
    ranks = [[header["names"][code] for code in header["order"]] for header in (whole, part)]
    assert ranks[0] == ranks[1] == list(operator_order(groups))


@pytest.mark.parametrize("ink", [palette.INK, palette.FAINT_INK])
def test_text_reads_on_the_card_in_light_and_dark(ink):
    assert contrast(ink, palette.CARD) >= 4.5
    assert contrast(palette.DARK[ink], palette.DARK[palette.CARD]) >= 4.5


def test_the_text_of_charts_that_know_no_theme_reads_on_both_grounds():
    assert min(contrast(palette.ON_ANY, ground) for ground in JUPYTERLAB_GROUNDS) >= 4.2


def test_what_has_a_dark_colour_is_told_apart_by_its_light_one():
    assert len({*palette.HOST.values()}) == len(palette.HOST) == len(HOST_COLOURS)
    assert not {palette.ON_LIGHT, palette.ON_DARK, *palette.KERNELS} & {*palette.DARK}


@pytest.mark.parametrize(("name", "bar", "ink"), [stretch[:3] for stretch in STRETCHES])
def test_the_labels_of_bars_read_in_light_and_dark(name, bar, ink):
    assert contrast(bar, ink) >= 4, name
    assert contrast(palette.DARK.get(bar, bar), palette.DARK.get(ink, ink)) >= 4, name


def test_overlap_stands_out_from_one_kernel_on_light_and_on_dark_cards():
    one, more = palette.BUSY, palette.OVERLAPPED
    assert contrast(palette.CARD, more) >= 1.7 * contrast(palette.CARD, one)
    card = palette.DARK[palette.CARD]
    assert contrast(card, palette.DARK[more]) >= 1.7 * contrast(card, palette.DARK.get(one, one))


@pytest.mark.parametrize("dark", [False, True])
def test_api_calls_are_told_from_the_other_kinds_of_the_host(dark):
    """By the distance in CIELAB (CIE76): 2.3 is just noticeable, and these are bars a few pixels wide."""
    colours = {kind: lab(palette.host_colour(kind, dark=dark)) for kind in palette.HOST_SHARES}
    assert min(np.linalg.norm(colours["api"] - colour) for kind, colour in colours.items() if kind != "api") >= 10


def lab(colour):
    """Return L*, a*, b* of an sRGB colour under D65."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    x, y, z = np.cbrt(matrix @ linear / [0.95047, 1, 1.08883])  # The cube root, as none of these is nearly black.
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
