"""One captured call: the memory for its arguments, the order of its kernels, and its results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any

from streamscope.capturing.arrays import is_tensor, repeats
from streamscope.capturing.memory import united
from streamscope.devices.cuda.captures import relaxed_captures
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.cuda.streams import CudaEvent
from streamscope.errors import EngineError, ProgramError
from streamscope.forks import foreign_lock, tell_children
from streamscope.interrupts import deferred, when_gone
from streamscope.parallelising import device_arrays
from streamscope.parallelising.calls import HOW, PLAIN_MODE, Calls, Given, Mode, other_mode
from streamscope.parallelising.device_arrays import ArrayIdentity, copier, fresh_copies, is_array, key, place
from streamscope.parallelising.quick_call import MOST_COPIED, Addresses, Arranger, Copying, Launch
from streamscope.parallelising.random_numbers import Philox
from streamscope.parallelising.trees import NOT_IN_ORDER, Array, Tree, difference, leaves, maker, matcher, taken_apart
from streamscope.words import listed

MISSED: Any = object()
"""Stands for the results of a call that did not run."""
QuickCall = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""``quickly(inputs, keywords)`` runs a call and returns its results, or `MISSED`."""


@dataclass(frozen=True)
class Slot:
    """The memory that an argument is in while captured code runs."""

    path: str
    """The argument, as errors name it."""
    memory: Any
    own: bool
    """Whether the memory is ours. Else it is the array that was given when the function was captured."""
    changed: bool
    """Whether the function writes to it, so that a plain call would have changed the argument."""
    shared: bool = False
    """Whether it overlaps with another argument, and one of the two is changed: neither can be copied into then."""


@dataclass(frozen=True)
class Returned:
    """Results of the function."""

    tree: Tree
    given: Mapping[int, int]
    """Results that are arguments: for the number of the result, that of the argument."""

    @classmethod
    def of(cls, value: object, arguments: Sequence[Any]) -> tuple[list[Any], Returned]:
        """Split a function's results into arrays and the rest."""
        arrays, tree = taken_apart(value, is_array, "its result")
        numbers = {id(argument): number for number, argument in enumerate(arguments)}
        return arrays, cls(tree, {number: numbers[id(array)] for number, array in enumerate(arrays) if id(array) in numbers})


@dataclass
class CapturedCall:
    """Captured code that is called like the function."""

    name: str
    tree: Tree
    """Of the arguments."""
    slots: Sequence[Slot]
    returned: Returned
    results: Sequence[Any]
    """Arrays in which the captured code leaves its results."""
    graph: CudaGraph
    """The captured code."""
    fresh: bool = True
    """Whether results are copied, so that the next call does not change them."""
    random: Sequence[Philox] = ()
    """Addresses of seed and offset, for each generator that the function draws from."""
    mode: Mode = PLAIN_MODE
    """In which it was captured."""
    given: Sequence[Given] = ()
    """The numbers that kernels were given of the optimisers that step."""
    _last: int | None = None
    _done: CudaEvent | None = None
    _lock: RLock = field(default_factory=RLock)
    _copying: Copying | None = None
    _copiers: dict[tuple[int, ...], Callable[[Sequence[Any]], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tell_children(self)
        arrays = [*(slot.memory for slot in self.slots), *self.results]
        self._keys = [key(slot.memory) for slot in self.slots]
        self._places = [place(slot.memory) for slot in self.slots]
        self._extents = [device_arrays.extent(slot.memory) for slot in self.slots]
        taken = united([reach for reach in self._extents if reach[0] < reach[1]])
        self._starts, self._ends = [start for start, _ in taken], [end for _, end in taken]
        self._changes = frozenset(number for number, slot in enumerate(self.slots) if slot.changed)
        self._tensors = any(map(is_tensor, arrays))
        self._in_place = any(slot.changed or not slot.own for slot in self.slots)
        self._mixed = self._tensors and not all(map(is_tensor, arrays))
        gpu = device_arrays.gpu_of(arrays[0]) if arrays else None
        self._caller = device_arrays.caller(gpu, tensors=self._tensors)
        self._gpu = self._caller.gpu() if gpu is None else gpu
        self._match, self._put_together = matcher(self.tree, is_array), maker(self.returned.tree)
        # A result in memory that is put back after the run would not outlive it.
        self._to_copy = [
            number
            for number, result in enumerate(self.results)
            if number not in self.returned.given and (self.fresh or self._in_a_slot(device_arrays.extent(result)))
        ]

    def _leave_behind(self) -> None:
        """Refuse calls: this is a forked child (see `forks`), in which CUDA does not work."""
        self._lock = foreign_lock(f"the parallelised {self.name!r}")

    @property
    def compared(self) -> tuple[int, int, int]:
        """How many parts a call compares with the captured ones: arrays, other values, and numbers of optimisers."""
        parts = [part for _, part in leaves(self.tree, "")]
        numbers = sum(len(group) for one in self.given for group in one.numbers)
        return len(self.slots), sum(not isinstance(part, Array) for part in parts), numbers

    def is_as_captured(self, mode: Mode) -> bool:
        """Tell whether the mode and the numbers of optimisers are as captured."""
        return self.mode == mode and not (self.given and any(one.changed() for one in self.given))

    def arrays_of(self, arguments: Mapping[str, Any]) -> list[Any] | None:
        """Return the arrays of a call's arguments; None where the call is not like the captured one."""
        found: list[Any] = [None] * len(self.slots)
        if not self._match(arguments, found):
            return None
        return found if all(key(array) == known for array, known in zip(found, self._keys, strict=True)) else None

    def quick_path(self, calls: Calls) -> QuickCall:
        """Return a function that runs most calls, and looks up nothing that has not changed since the capture.

        It misses calls that are not like the captured one, and those that take more than to copy the bytes of arguments and to launch.
        """
        copied = [slot.own and not slot.changed for slot in self.slots]
        if len(copied) > MOST_COPIED or self.random or self._mixed:
            return lambda inputs, keywords: MISSED
        in_mode, given, gpu, put_together = calls.in_mode(self.mode), self.given, self._gpu, self._put_together
        gpu_of_caller, stream_of_caller, is_captured = self._caller
        self._copying = Copying(self._extents, self.graph) if any(copied) else None
        launches, set_addresses = (self._copying.launches, self._copying.set) if self._copying else ({}, _copy_nothing)
        regions = united([*zip(self._starts, self._ends, strict=True), *(self._copying.cleared if self._copying else ())])
        arranged, told = Arranger(self.tree, len(copied), calls), Addresses([slot.memory for slot in self.slots], copied, regions)
        launches[tuple(where[0] for where in self._places)] = self.graph.launch_on
        static = None if self._to_copy or self.returned.given else self.results
        straight, data_ptr, one = arranged.straight, told.data_ptr, len(copied) == 1

        def quickly(inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
            if not in_mode() or (given and any(one.changed() for one in given)):
                return MISSED
            arrays = inputs if len(inputs) == straight and not keywords else arranged(inputs, keywords)
            if arrays is None:
                return MISSED
            addresses: Any = ((data_ptr(arrays[0]),) if one else tuple(map(data_ptr, arrays))) if told.alike(*arrays) else told.read(arrays)
            with self._lock:  # First: a forked child has none, and no CUDA to ask.
                stream = stream_of_caller()
                if gpu_of_caller() != gpu or is_captured(stream):
                    return MISSED
                launch = launches.get(addresses)
                if launch is None and addresses not in told.known and told.read(arrays) is None:
                    return MISSED
                done = (stream == self._last and self._done) or self._follow(stream)
                try:
                    (launch or set_addresses(addresses))(stream)
                    results = static or self._results(arrays)
                finally:
                    done.record(stream)
            return put_together(results)

        return quickly

    def why_not(self, arguments: Mapping[str, Any], mode: Mode) -> tuple[str, str]:
        """Say how a call differs from the captured one, with a remedy."""
        why, how = other_mode(self.mode, mode)
        if why:
            return why, how
        for changed in filter(None, (one.changed() for one in self.given)):
            return changed, HOW
        if found := difference(self.tree, taken_apart(arguments, is_array)[1]):
            _, _, order = found.partition(NOT_IN_ORDER)
            return found, f"pass the keys in the order {order}" if order else "pass what was captured"
        arrays: list[Any] = [None] * len(self.slots)
        self._match(arguments, arrays)
        pairs = zip(self.slots, arrays, strict=True)
        slot, array = next((slot, array) for slot, array in pairs if key(slot.memory) != key(array))
        why = f"{slot.path} is {device_arrays.spec_text(array)}, and {device_arrays.spec_text(slot.memory)} was captured"
        return why, device_arrays.how_to_fit(slot.path, array, slot.memory)

    def run(self, arrays: Sequence[Any]) -> Any:
        """Run with the arrays of a call, on the caller's current stream of their GPU, and return the function's results."""
        with self._lock:
            there = self._caller.gpu() == self._gpu
        with nullcontext() if there else device_arrays.on_gpu(self._gpu):
            return self._run_there(arrays)

    def _run_there(self, arrays: Sequence[Any]) -> Any:
        stream = self.free_stream()
        # The lock spans the launch and its event: the next call, on any stream, waits for this one's.
        with self._lock, device_arrays.cupy_on(stream) if self._mixed else nullcontext():
            done = self._follow(stream)
            places = list(map(place, arrays))
            elsewhere = tuple(number for number, (own, given) in enumerate(zip(self._places, places, strict=True)) if own != given)
            sources = self._sources(arrays, places, elsewhere) if elsewhere else ()
            try:
                if self._in_place or self.random:
                    with deferred():
                        results = self._replaced(stream, arrays, sources, elsewhere)
                else:
                    self._run(stream, sources, elsewhere)
                    results = self._results(arrays)
            finally:
                # Also after an error: part of the run may be on the stream, and uses the slots.
                done.record(stream)
        return self._put_together(results)

    def free_stream(self) -> int:
        """Return the caller's current stream.

        Raises
        ------
        EngineError
            It is being captured, or this is a forked child.
        """
        with self._lock:
            stream = self._caller.stream()
            captured = self._caller.is_captured(stream)
        if captured:
            raise EngineError(
                f"{self.name} was called while its stream is captured, and a graph cannot be launched into another one",
                hint="call the plain function there",
            )
        return stream

    def _run(self, stream: int, sources: Sequence[Any], elsewhere: tuple[int, ...]) -> None:
        """Copy the arrays that lie elsewhere than in the capture's memory, and run."""
        if elsewhere:
            self._copier(elsewhere)(sources)
        for generator in self.random:
            generator.draw()
        self.graph.launch_on(stream)

    def _replaced(self, stream: int, arrays: Sequence[Any], sources: Sequence[Any], elsewhere: tuple[int, ...]) -> Sequence[Any]:
        """Run; copy changed arguments back, and restore arguments that only lent their memory."""
        # Copied before anything is overwritten; the stream keeps that order.
        kept = self._kept(elsewhere)
        moved = zip(elsewhere, sources, strict=True)
        changed = [(number, source) for number, source in moved if self.slots[number].changed and not repeats(arrays[number])]
        ran = False
        try:
            self._run(stream, sources, elsewhere)
            ran = True
            return self._results(arrays)
        finally:
            # An argument in a slot's memory gets its values last, by way of its copy: what lent that memory is put back before.
            if ran:
                for number, source in changed:
                    copier([source])([self.slots[number].memory])
            for number, values in kept.items():
                copier([self.slots[number].memory])([values])
            if ran:
                for number, source in changed:
                    if source is not arrays[number]:
                        copier([arrays[number]])([source])

    def _sources(self, arrays: Sequence[Any], places: Sequence[ArrayIdentity], elsewhere: Sequence[int]) -> list[Any]:
        """Return the arrays for the slots, with a copy of one that shares memory with a slot.

        Raises
        ------
        ProgramError
            Arguments share memory, and the function changes one of them: captured code has each in memory of its own.
        """
        if self._changes and len(arrays) > 1:
            for group in _groups([self._extent(number, arrays[number], where) for number, where in enumerate(places)]):
                if not self._changes.isdisjoint(group) and not group.isdisjoint(elsewhere):
                    names = listed([self.slots[number].path for number in sorted(group)])
                    raise ProgramError(
                        f"{self.name}: {names} share memory, the function changes it, and it was captured with other memory",
                        hint="pass copies (.clone(), .copy()), or call the plain function",
                    )
        return [
            device_arrays.copied(arrays[number])
            if self._in_a_slot(self._extent(number, arrays[number], places[number]))
            else arrays[number]
            for number in elsewhere
        ]

    def _extent(self, number: int, array: Any, where: ArrayIdentity) -> tuple[int, int]:
        """Return the extent of an argument; of most it is that of their slot, moved."""
        start, strides, *_ = self._places[number]
        if strides != where[1]:
            return device_arrays.extent(array)
        moved, (low, high) = where[0] - start, self._extents[number]
        return low + moved, high + moved

    def _in_a_slot(self, reach: tuple[int, int]) -> bool:
        """Tell whether memory overlaps with a slot's."""
        first = bisect_right(self._ends, reach[0])
        return first < len(self._ends) and self._starts[first] < reach[1]

    def _kept(self, elsewhere: Sequence[int]) -> dict[int, Any]:
        """Return copies of memory of the user's that a call with other arguments overwrites for a while."""
        if shared := [self.slots[number].path for number in elsewhere if self.slots[number].shared]:
            raise ProgramError(
                f"{self.name}: {listed(shared)} shared memory with another argument when it was captured, and the function changes it",
                hint="pass the same arrays again, filled anew",
            )
        return {number: device_arrays.copied(self.slots[number].memory) for number in elsewhere if not self.slots[number].own}

    def _results(self, arrays: Sequence[Any]) -> Sequence[Any]:
        if not self._to_copy and not self.returned.given:
            return self.results
        results = list(self.results)
        for number, array in zip(self._to_copy, fresh_copies([results[number] for number in self._to_copy]), strict=True):
            results[number] = array
        for number, argument in self.returned.given.items():
            results[number] = arrays[argument]
        return results

    def _copier(self, numbers: tuple[int, ...]) -> Callable[[Sequence[Any]], None]:
        if numbers not in self._copiers:
            self._copiers[numbers] = copier([self.slots[number].memory for number in numbers])
        return self._copiers[numbers]

    def _follow(self, stream: int) -> CudaEvent:
        """Let a stream wait for the last run, which uses the same memory, and return the event that is to be recorded behind the next."""
        if self._done is None:
            with deferred():
                self._done = CudaEvent(timing=False)
                # Who lets this go while it runs, gives the memory to others only when that is over.
                when_gone(self, partial(_let_finish, self._done, (self.slots, self.results, self.graph, self._copying, self.random)))
        elif self._last != stream:
            self._done.hold(stream)
        # CuPy's streams go, and another one may then have the same address. Last: after Ctrl-C in the lines above, the next call waits.
        self._last = stream if self._tensors else None
        return self._done


def _copy_nothing(addresses: tuple[int, ...]) -> Launch:
    raise AssertionError("no argument may lie elsewhere than in the capture's memory")


def _let_finish(done: CudaEvent, memory: object) -> None:
    """Wait for the last run, whose memory is kept until then, from whichever thread, even one that captures."""
    with suppress(Exception), relaxed_captures():
        done.synchronize()


def overlapping(arrays: Sequence[Any]) -> list[set[int]]:
    """Return groups of arrays, by their numbers, that share memory: each with another one of its group."""
    return _groups([device_arrays.extent(array) for array in arrays])


def _groups(extents: Sequence[tuple[int, int]]) -> list[set[int]]:
    reaches = sorted((*reach, number) for number, reach in enumerate(extents))
    groups: list[set[int]] = []
    furthest = 0
    for start, end, number in reaches:
        if start == end:
            continue
        if groups and start < furthest:
            groups[-1].add(number)
        else:
            groups.append({number})
        furthest = max(furthest, end)
    return [group for group in groups if len(group) > 1]
