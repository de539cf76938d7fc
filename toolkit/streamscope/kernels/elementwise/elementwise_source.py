"""Source of element-wise kernels, broadcasting ones among them: vectors of up to 16 bytes a thread.

There is no grid-stride loop: the grid covers the array, and on an H200 the loop cost a small kernel 0.18 of 1.1 µs.

A thread reads all its operands, computes, and writes. Where the array begins behind a vector boundary, or ends before one, the first
and the last vector are masked: elements outside the array are neither read nor written. Most arrays need no masks, and a kernel without
them compiles in two thirds of the time.

Extents and strides are arguments, not constants: a new shape needs no new kernel, only a new rank does. Their price, divisions by
numbers that the compiler does not know, is two instructions each, because the host computes the reciprocals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.expression.wrapping import added
from streamscope.kernels.form import THREADS, Access, Form
from streamscope.kernels.layout import placing_source
from streamscope.kernels.signature import RESULT, Signature
from streamscope.kernels.source import STORAGE, VECTORS, KernelSource, conversions_source, loaded, named_source, stored

_CUDA = pieces("elementwise")


@dataclass(frozen=True)
class _Array:
    """One array of a kernel, and how its elements are found."""

    name: str
    dtype: str
    access: Access
    form: Form

    @property
    def placed(self) -> bool:
        """Whether its elements' offsets are computed from the layout."""
        return self.access is not Access.LINEAR and (self.form.rank > 1 or self.access is Access.STRIDED)

    @property
    def held(self) -> str:
        """Name of a thread's share of it."""
        return f"held_{self.name}"

    @property
    def values(self) -> str:
        """C++ type of a thread's share of it."""
        element = STORAGE[self.dtype]
        return element if self.access is Access.REPEATED else f"vector<{element}, {self.form.width}>"

    def load(self, target: str, declare: str) -> list[str]:
        """Return the statements that load a thread's elements into ``target``."""
        if self.access is Access.STRIDED:
            return [f"{declare}{target} = {{}};", *self._each(f"{target}.item[k] = {self._element()};")]
        if self.access is Access.REPEATED:
            return [f"{declare}{target} = {self.name}[{f'from.{self.name}' if self.placed else 0}];"]
        if self.form.masked:
            return [f"{declare}{target} = read<{self.form.width}>({self._start()}, n, size);"]
        return [f"{declare}{target} = fetched<{self.form.width}>({self._vector()});"]

    def save(self, source: str) -> list[str]:
        """Return the statements that store a thread's elements."""
        if self.access is Access.STRIDED:
            return self._each(f"{self._element()} = {source}.item[k];")
        return [f"write({self._start()}, n, size, {source});" if self.form.masked else f"put({self._vector()}, {source});"]

    def item(self, values: str, index: int) -> str:
        """Return the C++ expression for the value of one of the elements that were loaded."""
        return loaded(self.dtype, values if self.access is Access.REPEATED else f"{values}.item[{index}]")

    def _start(self) -> str:
        # A row's elements follow each other from its own start, so the pointer is moved to where its element 0 would be.
        return self.name if self.access is Access.LINEAR else f"{self.name} + from.{self.name} - n"

    def _vector(self) -> str:
        return f"{self.name} + {'n' if self.access is Access.LINEAR else f'from.{self.name}'}"

    def _element(self) -> str:
        offset = f"from.{self.name} + k * at.{self.name}[{self.form.rank - 1}]" if self.form.rows else f"place(n + k, at).{self.name}"
        return f"{self.name}[{offset}]"

    def _each(self, statement: str) -> list[str]:
        inside = "if (n + k >= 0 && n + k < size) " if self.form.masked else ""
        return [_UNROLL, f"for (int k = 0; k < {self.form.width}; ++k)", f"    {inside}{statement}"]


_UNROLL = "#pragma unroll"


@lru_cache(maxsize=4096)
def elementwise_source(signature: Signature, form: Form) -> KernelSource:
    """Return the kernel of an expression in one form.

    Its arguments are the operands in order (pointers to first elements, and scalars in their arithmetic type), the result's pointer,
    the number of elements (64 bits), the lead (32 bits) where the form is masked, and the `layout_numbers` where there are `placed_arrays`.
    """
    arrays = _arrays(signature, form)
    placed = [array.name for array in arrays if array.placed]
    pieces = [
        conversions_source(signature.dtypes),
        VECTORS,
        _CUDA["masked_vectors"] if form.masked else "",
        placing_source(placed, form.rank, wide=form.wide) if placed else "",
        signature.value_source(),
        _kernel(signature, form, arrays),
    ]
    readable = f"{signature.title}_x{form.width}{f'x{form.items}' * (form.items > 1)}{'_masked' * form.masked}"
    if placed:
        readable += f"_{form.rank}d"
    return named_source(readable, "\n".join(piece for piece in pieces if piece))


def placed_arrays(signature: Signature, form: Form) -> list[int]:
    """Return which arrays (the result last) need their strides in the layout argument; none: there is no such argument."""
    return [index for index, array in enumerate(_arrays(signature, form)) if array.placed]


def _arrays(signature: Signature, form: Form) -> list[_Array]:
    names = [*(parameter.argument for parameter in signature.arrays), RESULT]
    return [_Array(*each, form) for each in zip(names, signature.dtypes, form.accesses, strict=True)]


def _kernel(signature: Signature, form: Form, arrays: list[_Array]) -> str:
    placed = any(array.placed for array in arrays)
    parameters = [*signature.declarations, "long long size", *["int lead"] * form.masked, *["layout at"] * placed]
    reads = arrays if signature.accumulate else arrays[:-1]
    common = {
        "threads": THREADS,
        "parameters": ", ".join(parameters),
        "width": form.width,
        "less_lead": " - lead" if form.masked else "",
    }
    if form.items == 1:
        written = {parameter.argument for parameter in signature.updated}
        loads = [line for array in reads for line in array.load(array.held, _declared(array, constant=array.name not in written))]
        results = _results(signature, form, arrays, "")
        return fill(_CUDA["one_vector"], **common, offsets=_offsets(form, arrays), loads="\n".join(loads), results=results)
    return fill(
        _CUDA["many_vectors"],
        **common,
        items=form.items,
        of_block=THREADS * form.items,
        apart=THREADS * form.width,
        held="\n".join(f"{array.values} {array.held}[{form.items}];" for array in reads),
        offsets=_offsets(form, reads),
        loads="\n".join(line for array in reads for line in array.load(f"{array.held}[j]", "")),
        offsets_of_result=_offsets(form, arrays[-1:]),
        results=_results(signature, form, arrays, "[j]"),
    )


def _declared(array: _Array, *, constant: bool) -> str:
    return f"{'const ' if constant and array.access is not Access.STRIDED else ''}{array.values} "


def _offsets(form: Form, arrays: list[_Array]) -> str:
    return "const offsets from = place(n, at);" if form.rows and any(array.placed for array in arrays) else ""


def _results(signature: Signature, form: Form, arrays: list[_Array], item: str) -> str:
    result, held = arrays[-1], {array.name: array for array in arrays}
    updated = [held[parameter.argument] for parameter in signature.updated]
    lines = [f"{result.values} results;"]
    # Written out, since a loop that NVRTC has to unroll takes a sixth of the time that a small kernel takes to compile.
    for index in range(form.width):
        values = {array.name: array.item(f"{array.held}{item}", index) for array in arrays}
        arguments = [values.get(parameter.argument, parameter.argument) for parameter in signature.parameters]
        value = f"value({', '.join([*arguments, *(values[array.name] for array in updated)])})"
        total = added(signature.result, values[RESULT], value) if signature.accumulate else value
        lines.append(stored(result.dtype, f"results.item[{index}]", total))
    saves = [line for array in updated for line in array.save(f"{array.held}{item}")]
    return "\n".join([*lines, *saves, *result.save("results")])
