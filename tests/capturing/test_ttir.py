"""Which arguments of Triton's kernels lead to memory that is read or written, from texts that Triton 3.6 made (tests/data/ttir)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamscope.capturing.triton_kernels import ANYWHERE, kernel_arguments

TEXTS = Path(__file__).parents[1] / "data" / "ttir"
EXPECTED = {
    # name: arguments that are read, and that are written, as their functions in kernels.py say
    "add": ({0, 1}, {2}),
    "histogram": ({0, 1, 2}, {1, 2}),
    "moving": ({0, 1}, {2}),
    "swapped": ({0, 1}, {0, 1}),
    "chosen": ({2}, {0, 1}),
    "early": ({0}, {1}),
    "blocks": ({0}, {1}),
    "descriptors": ({0}, {1}),
    "host_descriptors": ({0, 10}, {5}),
    "pointers": ({ANYWHERE, 0}, {1}),
    "assembly": ({0}, {1}),
    "hidden_store": ({0}, {0, 1}),
    "summed": ({0}, {1}),
    "waiting": ({0, 1}, {0, 2}),
}


def text(name: str) -> str:
    return (TEXTS / f"{name}.ttir").read_text()


@pytest.mark.parametrize("name", EXPECTED)
def test_pointers_are_followed_back_to_arguments(name):
    read, written = EXPECTED[name]
    found = kernel_arguments(text(name))
    pointers = {ANYWHERE, *(number for number, kind in enumerate(found.types) if "ptr" in kind or "desc" in kind)}
    assert (found.read & pointers, found.written & pointers) == (read, written)
    assert found.complete == (ANYWHERE not in read | written)


def test_each_text_is_tried():
    assert {path.stem for path in TEXTS.glob("*.ttir")} == {*EXPECTED, "calling"}


@pytest.mark.parametrize("path", sorted((TEXTS / "inductor").glob("*.ttir")), ids=lambda path: path.stem)
def test_kernels_of_torch_compile_write_what_it_calls_outputs(path):
    """PyTorch 2.11 names the arguments of its kernels by what they are: ``in_ptr0``, ``out_ptr0``, ``in_out_ptr0``."""
    found = kernel_arguments(path.read_text())
    names = re.findall(r"%(\w+): ", re.search(r"tt\.func public @\w+\((.*)", path.read_text())[1])
    assert len(names) == len(found.types)
    assert {names[number] for number in found.written} == {name for name in names if "out_ptr" in name}
    assert {name for name in names if name.startswith("in_")} <= {names[number] for number in found.read}
    assert found.complete


def test_an_argument_is_known_by_its_type():
    assert kernel_arguments(text("add")).types == ("!tt.ptr<f32>", "!tt.ptr<f32>", "!tt.ptr<f32>", "i32")
    tensor, *numbers = kernel_arguments(text("host_descriptors")).types[:5]
    assert tensor.startswith("!tt.tensordesc")
    assert numbers == ["i32", "i32", "i64", "i64"]


def kernel(body: str, arguments: str = "%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %n: i64") -> str:
    return f"module {{\n  tt.func public @k({arguments}) attributes {{noinline = false}} {{\n{body}\n    tt.return\n  }}\n}}\n"


def test_an_operation_that_nobody_knows_reads_and_writes_what_it_is_given():
    found = kernel_arguments(kernel('    "other.thing"(%a) : (!tt.ptr<f32>) -> ()'))
    assert (found.read, found.written) == ({0}, {0})
    assert kernel_arguments(kernel("    %0 = other.thing %n : i64 -> f32")).written == {2}


@pytest.mark.parametrize(("pure", "touched"), [("true", set()), ("false", {0})])
def test_a_function_of_a_library_touches_memory_unless_it_is_pure(pure, touched):
    call = f'    %0 = tt.extern_elementwise %a {{libname = "", libpath = "", pure = {pure}, symbol = "f"}} : (!tt.ptr<f32>) -> f32'
    found = kernel_arguments(kernel(call))
    assert (found.read, found.written) == (touched, touched)


def test_what_an_unknown_operation_returns_may_lead_anywhere():
    found = kernel_arguments(kernel("    %0 = other.thing %n : i64 -> !tt.ptr<f32>\n    tt.store %0, %n : !tt.ptr<f32>"))
    assert ANYWHERE in found.written
    assert not found.complete


def test_an_address_from_a_table_of_pointers_may_lead_anywhere():
    table = kernel("    %0 = tt.load %a : !tt.ptr<!tt.ptr<f32>>\n    %1 = tt.load %0 : !tt.ptr<f32>", "%a: !tt.ptr<!tt.ptr<f32>>")
    assert not kernel_arguments(table).complete


def test_a_pointer_that_a_branch_hands_on_is_followed():
    body = """    cf.cond_br %n, ^bb1(%a : !tt.ptr<f32>), ^bb2
  ^bb1(%0: !tt.ptr<f32>):  // pred: ^bb0
    tt.store %0, %n : !tt.ptr<f32>
    cf.br ^bb2
  ^bb2:  // 2 preds: ^bb0, ^bb1"""
    assert kernel_arguments(kernel(body)).written == {0}


def test_both_branches_of_a_choice_are_followed():
    body = """    %0 = scf.if %n -> (!tt.ptr<f32>) {
      scf.yield %a : !tt.ptr<f32> loc(#loc3)
    } else {
      scf.yield %b : !tt.ptr<f32> loc("k"(#loc3))
    } loc(#loc4)
    tt.store %0, %n : !tt.ptr<f32> loc(#loc)"""
    assert kernel_arguments(kernel(body)).written == {0, 1}


def test_a_pointer_that_moves_in_a_while_loop_is_followed():
    body = """    %0 = scf.while (%arg = %a) : (!tt.ptr<f32>) -> !tt.ptr<f32> {
      scf.condition(%n) %arg : !tt.ptr<f32>
    } do {
    ^bb0(%inner: !tt.ptr<f32>):
      tt.store %inner, %n : !tt.ptr<f32>
      %1 = tt.addptr %inner, %n : !tt.ptr<f32>, i64
      scf.yield %1 : !tt.ptr<f32>
    }
    %2 = tt.load %0 : !tt.ptr<f32>"""
    found = kernel_arguments(kernel(body))
    assert (found.read, found.written) == ({0}, {0})


@pytest.mark.parametrize(
    "other",
    ["", "nothing of this kind", kernel("    %0 <- tt.load %a"), kernel("    tt.call @other(%a) : (!tt.ptr<f32>) -> ()"), text("calling")],
)
def test_a_text_that_cannot_be_followed_says_nothing(other):
    assert kernel_arguments(other) is None
