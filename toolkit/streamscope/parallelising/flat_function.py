"""Capturing one call of a function, whatever trees its arrays are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamscope.capturing.capture_errors import CAPTURE_HINT, MEMORY_HINT, line_and_reason
from streamscope.capturing.function import CapturedFunction, capture
from streamscope.capturing.memory import regions_of
from streamscope.capturing.state import led_to
from streamscope.devices.cuda.captures import CAPTURES
from streamscope.errors import EngineError, OutOfMemoryError, ProgramError, StreamscopeError
from streamscope.parallelising import device_arrays
from streamscope.parallelising.calls import HOW, Arguments, Calls, Given, numbers_of, optimisers, that_step
from streamscope.parallelising.captured_call import Returned, Slot, overlapping
from streamscope.parallelising.trees import Held, Tree, difference, leaves, paths, put_together, same, taken_apart
from streamscope.words import listed


@dataclass
class FlatFunction:
    """A function of arrays alone, which returns arrays alone, made of one of trees."""

    function: Callable[..., Any]
    calls: Calls
    tree: Tree
    """Of the arguments."""
    returned: Returned | None = None
    """Results of the last call."""
    failed: Exception | None = field(default=None, repr=False)
    """Error of the function while it was captured."""
    optimisers: list[Any] = field(default_factory=list, repr=False)
    """Those of PyTorch's that there are; none but while the function is captured."""
    given: list[Given] = field(default_factory=list, repr=False)
    """The same with the numbers that they had when the function was captured."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Call the function; whatever it returns beside arrays must be the same each time."""
        if CAPTURES.active and self.optimisers:
            self.given = [Given(one, numbers_of(one)) for one in self.optimisers]
        held: list[tuple[Any, Any]] = []
        try:
            value = self.calls.call(self.function, put_together(self.tree, arrays, held))
        except Exception as error:
            if CAPTURES.active:
                self.failed = error
            raise
        if not all(same(given, now) for given, now in held):
            raise ProgramError(
                f"{self.calls.name} writes to numbers that it is given in host memory, and captured kernels do not",
                hint="put them on the GPU, such as the steps of an optimiser: torch.tensor(0., device='cuda')",
            )
        results, returned = Returned.of(value, arrays)
        for path, result in zip(paths(returned.tree, "its result"), results, strict=True):
            device_arrays.check_on_device(self.calls.name, path, result)
        if self.returned is not None and (found := difference(self.returned.tree, returned.tree, "its result")):
            raise ProgramError(
                f"{self.calls.name} returned something else when it was called again: {found}",
                hint="what is not an array must not change: captured kernels run again, Python does not",
            )
        self.returned = returned
        return tuple(results)


def captured(
    function: Callable[..., Any],
    calls: Calls,
    arguments: Arguments,
    title: str,
    memory_limit: int | str | None,
    called: Callable[[], object],
) -> tuple[CapturedFunction, list[Slot], FlatFunction]:
    """Capture one call of a function, and return it as one of arrays, too; ``called`` is called after the first of several calls.

    Inputs that the function only reads are captured in copies, so that calls with others do not overwrite the ones that were given. Those
    that it changes, or that gradients are gathered in, stay where they are, and so do those that overlap with them.

    Raises
    ------
    ProgramError
        An argument or a result is not in the memory of the current GPU, or results or an optimiser's numbers differ from call to call.
    EngineError
        The function cannot be captured.
    OutOfMemoryError
    """
    arrays, tree = taken_apart(arguments, device_arrays.is_array)
    names = paths(tree)
    for path, array in zip(names, arrays, strict=True):
        device_arrays.check_on_device(calls.name, path, array)
    flat = FlatFunction(function, calls, tree)
    slots = _tried(flat, names, arrays)
    called()
    flat.optimisers = optimisers()
    try:
        found = capture(flat, *(slot.memory for slot in slots), name=title, memory_limit=memory_limit)
    except StreamscopeError as error:
        if flat.failed is None:
            raise
        held = [path for path, part in leaves(tree, "") if isinstance(part, Held)]
        raise _not_capturable(title, flat.failed, error, held) from flat.failed
    # The others are let go. Later calls, during which another thread may capture, leave what this capture was given as it is.
    flat.given, flat.optimisers = that_step(flat.given, found.memories), []
    for changed in filter(None, (one.changed() for one in flat.given)):
        raise ProgramError(f"{title} changes a number of its optimiser in each call: {changed}", hint=HOW)
    return found, _with_evidence(slots, found), flat


def _tried(flat: FlatFunction, names: Sequence[str], arrays: Sequence[Any]) -> list[Slot]:
    """Call the function once on copies of its inputs, to see which of them it changes, and return where each is captured."""
    gathering = {number for number, array in enumerate(arrays) if device_arrays.stays_in_place(array)}
    used = [array if number in gathering else device_arrays.copied(array) for number, array in enumerate(arrays)]
    # PyTorch counts writes in place, so a write of equal values counts, too.
    versions = [getattr(array, "_version", 0) for array in used]
    with device_arrays.out_of_memory(f"calling {flat.calls.name}", hint="use smaller arrays, or free memory held by other programs"):
        flat(*used)
    changed = gathering | {
        number
        for number, (array, copy, version) in enumerate(zip(arrays, used, versions, strict=True))
        if getattr(copy, "_version", 0) != version or not device_arrays.holds_the_same(array, copy)
    }
    shared = {number for group in overlapping(arrays) if group & changed for number in group}
    return [
        Slot(name, array, own=False, changed=number in changed, shared=number in shared)
        if number in changed | shared
        else Slot(name, copy, own=True, changed=False)
        for number, (name, array, copy) in enumerate(zip(names, arrays, used, strict=True))
    ]


def _with_evidence(slots: Sequence[Slot], found: CapturedFunction) -> list[Slot]:
    """Return slots that count as changed, too, where a node may write to them, though the values stayed the same.

    A node that is not understood may write wherever an address leads that it finds in its memory, as in arrays of pointers. Where nothing
    is known of it, it may write to all of them.
    """
    unknown = [memory for memory in found.memories if not memory.understood]
    if not all(memory.accesses for memory in unknown):
        return [replace(slot, changed=True) for slot in slots]
    writes = [one for memory in found.memories for one in memory.accesses if one.writes]
    extents = [device_arrays.extent(slot.memory) for slot in slots]
    hidden = led_to((region for memory in unknown for region in regions_of(memory)), extents)
    return [
        replace(slot, changed=slot.changed or led or any(one.start < end and start < one.end for one in writes))
        for slot, (start, end), led in zip(slots, extents, hidden, strict=True)
    ]


def _not_capturable(title: str, failed: Exception, error: StreamscopeError, held: Sequence[str] = ()) -> StreamscopeError:
    """Return the error of a function that cannot be captured, with the user's line; ``held`` are its arguments in host memory."""
    if isinstance(failed, StreamscopeError):
        return failed
    if device_arrays.is_out_of_memory(failed):
        return OutOfMemoryError(f"device memory ran out while {title} was captured{line_and_reason(failed)}", hint=MEMORY_HINT)
    hint = error.hint or CAPTURE_HINT
    if held:
        hint = f"{hint}; and move to the GPU what is needed there: {listed(held)} {'lies' if len(held) == 1 else 'lie'} in host memory"
    return EngineError(f"{title} cannot be captured{line_and_reason(failed)}", hint=hint)
