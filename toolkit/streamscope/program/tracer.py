"""Operators, and the tracer that collects a function's operations on symbols while it is called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import _GeneratorContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from streamscope.arguments import shown
from streamscope.device_entry import MOST_GPUS
from streamscope.docstrings import with_shared_parts
from streamscope.errors import ProgramError, printable
from streamscope.program.aliasing import Aliasing, check_update, too_wide
from streamscope.program.launch import Cost, CudaBuilder, HostCall, Launch, LaunchKind, Reference, labelled
from streamscope.program.operand_views import kept_in_part, operands, placing, seeing_launch, seen_reads
from streamscope.program.operation import Operation, Program
from streamscope.program.symbol import Symbol, SymbolView, operators
from streamscope.program.user_line import UserLine, UserLines, user_function, user_line
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import View, Viewing, like_new, whole
from streamscope.program.widening import origin_of
from streamscope.words import a_kind, counted, listed

AN_INPUT = (
    "make it an input, by position or by the name of a parameter before any *; in a %%streamscope cell, give each array a name of its own, "
    "outside lists; ss.empty makes variables inside a program"
)
"""Remedy for an array, or a list, as an operand."""
Attributes = Mapping[str, Any]
_Thing = TypeVar("_Thing", bound=Callable[..., Any])


def applies_operators(thing: _Thing) -> _Thing:
    """Mark a function, or a class of callable objects, as an operator: called with variables of a program, it adds operations."""
    thing.applies_operators = True  # type: ignore[attr-defined]
    return with_shared_parts(thing)


def takes_list(function: object) -> bool:
    """Tell whether an operator takes its operands as one list, as those of collectives are: one variable a GPU."""
    return getattr(function, "takes_list", False) is True


def of_list(thing: _Thing) -> _Thing:
    """Mark an operator that takes its operands as one list."""
    thing.takes_list = True  # type: ignore[attr-defined]
    return applies_operators(thing)


def is_operator(function: object) -> bool:
    """Tell whether `applies_operators` marked a function or its class."""
    return any(getattr(one, "applies_operators", False) is True for one in (function, getattr(function, "__self__", None)))


@dataclass(frozen=True)
class Application:
    """One application of an operator."""

    operation: int
    """Id of the operation."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Ids of the arguments, in order, and of the results."""
    read_specs: Sequence[ArraySpec]
    write_specs: Sequence[ArraySpec]
    attributes: Attributes
    views: Sequence[View | None] = ()
    """How each argument is seen."""
    read_gpus: Sequence[int] = ()
    write_gpus: Sequence[int] = ()
    """The GPUs of all arguments and of all results."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arguments, each counted once, and of all results."""
        read = dict(zip(self.reads, self.read_specs, strict=True))
        return sum(spec.nbytes for spec in (*read.values(), *self.write_specs))

    def kernel(self, name: str, cost: Cost, reference: Reference | None, cuda: CudaBuilder, **others: Any) -> tuple[Launch, ...]:
        """Return the work of an operation that launches one kernel; ``others`` are further attributes of `Launch`."""
        return (Launch(self.operation, 0, name, LaunchKind.KERNEL, self.reads, self.writes, cost, reference, cuda, **others),)


@dataclass(frozen=True)
class Backward:
    """One operation in a backward pass, as its operator's gradient rule gets it."""

    upstream: Sequence[Symbol | None]
    """The gradient of each result; None where nothing differentiable depends on it."""
    wanted: Sequence[bool]
    """For each argument whether its gradient is needed."""
    read_specs: Sequence[ArraySpec]
    write_specs: Sequence[ArraySpec]
    read_gpus: Sequence[int]
    attributes: Attributes
    operand: Callable[[int], Symbol]
    """``operand(place) -> variable`` with the value that an argument had. Only what a rule asks for has to be kept."""
    result: Callable[[int], Symbol]
    """``result(place) -> variable`` with a result, likewise."""
    holds: Callable[[int], bool]
    """``holds(place) -> bool``: whether nothing was written over a result since."""

    @property
    def dy(self) -> Symbol:
        """The gradient of the only result."""
        (gradient,) = self.upstream
        if gradient is None:
            raise TypeError("an operation without an upstream gradient has no backward pass")
        return gradient

    @property
    def adds(self) -> bool:
        """Whether the result was added to the last argument, by ``request="add"``: the gradient of that one is `dy`."""
        return self.attributes.get("request") == "add"


@applies_operators
@dataclass(frozen=True)
class Operator:
    """Something that a program can do to variables."""

    name: str
    infer: Callable[[Sequence[ArraySpec], Attributes], Sequence[ArraySpec]]
    """``infer(specs of the arguments, attributes) -> specs of the results``; raises `ProgramError` where they do not fit."""
    build: Callable[[Application], tuple[Launch, ...] | HostCall]
    """``build(application) -> launches, or one host call``."""
    reads_from: MemoryPlace = field(default=MemoryPlace.DEVICE)
    writes_to: MemoryPlace = field(default=MemoryPlace.DEVICE)
    """Where its arguments and its results lie."""
    in_place: bool = False
    """``out=`` may name one of its arguments: nothing is read after it may have been written."""
    writes_gpus: Callable[[Sequence[int], Attributes], Sequence[int]] | None = None
    """Of an operator over several GPUs, ``writes_gpus(GPUs of the arguments, attributes) -> GPUs of the results``. Its launches say where
    they run. Others run on the GPU that their arguments lie on."""
    reads_view: Callable[[View], bool] = like_new
    """``reads_view(view) -> bool``: it can read such a view as it is. Others are copied before. By default it reads views like memory
    of its own."""
    gradient: Callable[[Backward], Sequence[Symbol | None]] | None = None
    """``gradient(backward) -> gradients of the arguments``, None for one that has none or is not wanted. It applies operators. None: the
    operator has no gradient."""

    def __call__(self, *arguments: object, out: object = None, **attributes: Any) -> Any:
        """Apply the operator inside a program that is being traced."""
        return current_tracer(self.name).apply(self, arguments, attributes, out)


@dataclass(frozen=True)
class Value:
    """What a variable holds between two writes, as it is seen."""

    variable: int
    version: int
    """How often the variable had been written."""
    view: View | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The whole variable between these writes."""
        return self.variable, self.version


@dataclass(frozen=True)
class Taped:
    """An application of an operator on a tape, from which a backward pass is made."""

    operator: Operator
    operation: int
    """Id of the operation."""
    reads: tuple[Value, ...]
    """The arguments, in order."""
    writes: tuple[Value, ...]
    """The results, in order."""
    kept: frozenset[int]
    """Variables of which a part is written, and the rest stays."""


@dataclass
class Tracer:
    """Collects the operations that a function applies while it is traced."""

    name: str
    symbols: list[Symbol] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    label: str = ""
    """Current text of `label`; empty outside it."""
    gpu: int = 0
    """The GPU of `gpu`, 0 outside it: inputs that nothing has used yet, and results without arguments, come to lie there."""
    block: int | None = None
    """The GPU of the block of `gpu` that operations are in, None outside it: those that run elsewhere are refused."""
    several: bool = False
    """Whether anything may lie on another GPU than 0."""
    lines: UserLines = field(default_factory=UserLines)
    _copies: dict[tuple[int, View], tuple[int, Symbol]] = field(default_factory=dict)
    """Copies of views that operators could not read: how often the variable had been written, and the copy."""
    _writes: defaultdict[int, int] = field(default_factory=partial(defaultdict, int))
    """How often each variable has been written."""
    _before: defaultdict[int, list[ReferenceType[Symbol]]] = field(default_factory=partial(defaultdict, list))
    """By variable, the symbols that `before_writes` has noted."""
    reshapes: bool = False
    """There was a reshape that is a view, or a copy, by how an array lies in memory."""
    removable: set[int] = field(default_factory=set)
    """Operations that are left out where nothing uses them: those of functions that are differentiated."""
    finish: Callable[[Program], Program] | None = None
    """A pass over the program, which leaves them out."""
    filled: set[int] = field(default_factory=set)
    """Variables that a backward pass fills part by part. To a user, each is written once."""
    _tapes: list[list[Taped]] = field(default_factory=list)
    """The tapes that run, the outermost first."""

    def symbol(
        self,
        spec: ArraySpec,
        name: str,
        place: MemoryPlace | None,
        *,
        written: bool = True,
        sharing: Aliasing = Aliasing.ARRAY,
        gpu: int = 0,
    ) -> Symbol:
        """Make a new variable."""
        symbol = Symbol(self, len(self.symbols), spec, name, place, written, sharing, gpu=gpu)
        self.symbols.append(symbol)
        return symbol

    @contextmanager
    def taping(self) -> Iterator[list[Taped]]:
        """Note the applications of the block on a tape."""
        tape: list[Taped] = []
        self._copies.clear()  # A copy from before would not be on the tape.
        self._tapes.append(tape)
        try:
            yield tape
        finally:
            self._tapes.pop()

    def value_of(self, symbol: Symbol) -> Value:
        """Return what a symbol stands for now."""
        return Value(symbol.id, self._writes[symbol.id], symbol.seen)

    def holds(self, value: Value) -> bool:
        """Tell whether the variable has not been written since."""
        return self._writes[value.variable] == value.version

    def apply(
        self, operator: Operator, reads: Sequence[object], attributes: Mapping[str, Any], out: object = None
    ) -> Symbol | tuple[Symbol, ...]:
        """Apply an operator to symbols and return its outputs."""
        line = self.lines.here()
        where = labelled(line.where, self.label)
        sources, specs = self._inferred(operator, reads, attributes, where)
        if out is not None:
            for target in out if isinstance(out, tuple | list) else [out]:
                self._before_write(target)
            self._check_out(operator, sources, out, where)
        return self._apply(operator, sources, specs, attributes, out, line)

    def apply_to_parts(self, operator: Operator, reads: Sequence[object], attributes: Mapping[str, Any], targets: Sequence[Symbol]) -> None:
        """Apply an operator and write its results to parts of variables, which no operand shares."""
        line = self.lines.here()
        where = labelled(line.where, self.label)
        sources, specs = self._inferred(operator, reads, attributes, where)
        self._apply(operator, sources, specs, attributes, list(targets), line)

    def update(self, operator: Operator, reads: Sequence[object], attributes: Mapping[str, Any], target: Symbol) -> Symbol:
        """Apply an element-wise operator and write the result to a variable, or to a part of one, which keeps its shape and dtype."""
        line = self.lines.here()
        where = labelled(line.where, self.label)
        sources, (spec,) = self._inferred(operator, reads, attributes, where)
        check_update(target, operator.name, spec, lambda: too_wide(operator, sources, attributes, target.dtype))
        if not target.size:
            return target
        self._before_write(target)
        # A thread may read the element that it writes; whatever else is read of the variable must be read before.
        if spec == target.spec and all(source.id != target.id or source.seen == target.seen for source in sources):
            self._apply(operator, sources, [spec], attributes, target, line)
        else:
            operators["assign"](target, self._apply(operator, sources, [spec], attributes, None, line))
        return target

    def _inferred(
        self, operator: Operator, reads: Sequence[object], attributes: Mapping[str, Any], where: str
    ) -> tuple[list[Symbol], Sequence[ArraySpec]]:
        """Return the operands, checked, and the specs of the results."""
        new = [one for one in reads if isinstance(one, Symbol) and one.place is None] if self.several else ()
        sources = [self._source(operator, argument, where) for argument in reads]
        if self.several:
            self._settle_gpus(operator, sources, new, where)
        try:
            return sources, operator.infer([source.spec for source in sources], attributes)
        except ProgramError as error:
            names = ", ".join(f"{source.name!r}" for source in sources)
            raise ProgramError(f"{error.message}, applied to {names} at {where}", hint=self._origin(sources) or error.hint) from None

    def _apply(
        self,
        operator: Operator,
        sources: list[Symbol],
        specs: Sequence[ArraySpec],
        attributes: Mapping[str, Any],
        out: object,
        line: UserLine,
    ) -> Symbol | tuple[Symbol, ...]:
        """Add the operation that applies an operator to checked operands, and return its outputs."""
        where = labelled(line.where, self.label)
        viewing = any(source.seen is not None for source in sources)
        if viewing:
            sources = [self._readable(operator, source, where) for source in sources]
        at, read_gpus, write_gpus = self._gpus(operator, sources, attributes, len(specs))
        targets = self._targets(operator, sources, specs, attributes, out, where, write_gpus)
        self._check_aliases(operator, sources, targets, where)
        kept = kept_in_part(targets)
        values = [self.value_of(source) for source in sources] if self._tapes else []
        for target in targets:
            target.written = True
            self._writes[target.id] += 1
        number = len(self.operations)
        for tape in self._tapes:
            tape.append(Taped(operator, number, tuple(values), tuple(map(self.value_of, targets)), kept))
        # What an operator's work reads through a view has a number of its own until that is known: of its first place among the arguments.
        first = [(source.id, source.seen) for source in sources] if viewing else []
        arguments = tuple(-1 - first.index((one.id, one.seen)) if one.seen is not None else one.id for one in sources)
        writes = tuple(target.id for target in targets)
        read, seen = [source.spec for source in sources], [source.seen for source in sources]
        work = operator.build(
            Application(number, arguments, writes, read, [target.spec for target in targets], attributes, seen, read_gpus, write_gpus)
        )
        written = tuple(target.seen for target in targets)
        if any(written) and not isinstance(work, HostCall):
            work = tuple(placing(launch, targets, kept) for launch in work)
        reads, views, placed = *operands(sources, targets, kept), self._placed(work, sources, where, at)
        parts = written if any(written) else ()
        self.operations.append(
            Operation(number, operator.name, reads, writes, dict(attributes), line.where, placed, self.label, line.source, views, parts)
        )
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _gpus(
        self, operator: Operator, sources: Sequence[Symbol], attributes: Attributes, results: int
    ) -> tuple[int | None, Sequence[int], Sequence[int]]:
        """Return the GPU that an operation runs on, None where its launches say, and those of its arguments and of its results."""
        if not self.several and operator.writes_gpus is None:
            return 0, [0] * len(sources), [0] * results
        read_gpus = [source.gpu for source in sources]
        if operator.writes_gpus is not None:
            return None, read_gpus, operator.writes_gpus(read_gpus, attributes)
        at = read_gpus[0] if read_gpus and operator.reads_from is MemoryPlace.DEVICE else self.gpu
        return at, read_gpus, [at] * results

    def writes_in_place(self, inputs: Sequence[Symbol]) -> bool:
        """Tell whether an input is written, or another variable more than once."""
        often = any(count > 1 for variable, count in self._writes.items() if variable not in self.filled)
        return often or any(self._writes[each.id] for each in inputs)

    def before_writes(self, variable: int, symbol: Symbol) -> None:
        """Note a symbol that would not see in NumPy that a variable is written, or that does not see it here."""
        self._before[variable].append(ref(symbol))

    def _before_write(self, target: object) -> None:
        """Copy values that a write must not change, and note stale views, as far as the function still holds them."""
        if isinstance(target, Symbol):
            for symbol in [each() for each in self._before.pop(target.id, ())]:
                if isinstance(symbol, SymbolView):
                    copied = self.copied(symbol)
                    symbol.see(copied, whole(copied.spec))
                elif symbol is not None:
                    symbol.outdated = True

    def _origin(self, sources: Sequence[Symbol]) -> str:
        """Return a sentence about where the widest floating-point dtype came from, if the arguments have several; else nothing."""
        floats = {source.dtype for source in sources if source.dtype.kind == "f"}
        if len(floats) < 2:
            return ""
        widest = max(floats, key=lambda dtype: dtype.itemsize)
        origins = (
            origin_of(widest, source.id, self.operations, lambda each: self.symbols[each].spec, lambda each: self.symbols[each].name)
            for source in sources
            if source.dtype == widest
        )
        return next(filter(None, origins), "")

    def _placed(
        self, work: tuple[Launch, ...] | HostCall, sources: Sequence[Symbol], where: str, gpu: int | None
    ) -> tuple[Launch, ...] | HostCall:
        """Return the work of an operation with the user's line and label in it, its GPU, and the views through which it reads.

        Launches that write no elements are left out: they would do nothing. ``gpu`` is None where launches say where they run.
        """
        if isinstance(work, HostCall):
            reads, views = seen_reads(work.reads, sources)
            function = Viewing(work.function, views, listed=False) if views else work.function
            return replace(work, reads=reads, function=function, where=where)
        there: dict[str, Any] = {"where": where} if not gpu else {"where": where, "gpu": gpu}
        return tuple(
            seeing_launch(each.but(**there), sources)
            for each in work
            if any(self.symbols[v].spec.size for v in each.writes) or (each.collective is not None and each.collective.nbytes)
        )

    def _readable(self, operator: Operator, source: Symbol, where: str) -> Symbol:
        """Return a readable form of a variable: a copy of a view that the operator cannot read."""
        if not isinstance(source, SymbolView) or source.seen is None or operator.reads_view(source.view):
            return source
        if operator.reads_from is MemoryPlace.HOST:
            raise ProgramError(
                f"{operator.name} at {where} cannot read {source.name!r}, whose elements do not follow each other in host memory",
                hint="copy it in a host function first: np.ascontiguousarray(...)",
            )
        return self.copied(source)

    def copied(self, view: SymbolView) -> Symbol:
        """Return a copy of a view, made once for all who need it while the variable is not written."""
        key, writes = (view.id, view.view), self._writes[view.id]
        if key not in self._copies or self._copies[key][0] != writes:
            with self.anywhere():
                self._copies[key] = writes, operators["copy"](view)
        return self._copies[key][1]

    def _source(self, operator: Operator, argument: object, where: str) -> Symbol:
        if not isinstance(argument, Symbol):
            raise ProgramError(
                f"{operator.name} at {where} got {a_kind(argument)} instead of a variable of the program",
                hint=AN_INPUT,
            )
        if argument.tracer is not self:
            raise ProgramError(f"{operator.name} at {where} uses {argument.name!r}, which belongs to another program")
        if not argument.written:
            raise ProgramError(f"{operator.name} at {where} reads {argument.name!r}, which nothing has written")
        if argument.stale:
            raise ProgramError(
                f"{operator.name} at {where} reads {argument.name!r}, a view of {argument.stale!r} in NumPy, which was written since",
                hint="index again after the write, or copy before it: x[i].copy()",
            )
        self._settle(argument, operator.reads_from, operator, where)
        return argument

    def _targets(
        self,
        operator: Operator,
        sources: Sequence[Symbol],
        specs: Sequence[ArraySpec],
        attributes: Mapping[str, Any],
        out: object,
        where: str,
        gpus: Sequence[int],
    ) -> list[Symbol]:
        if out is None:
            return [self._result(operator, spec, gpu) for spec, gpu in zip(specs, gpus, strict=True)]
        targets: list[Any] = list(out) if isinstance(out, tuple | list) else [out]
        if len(targets) != len(specs):
            raise ProgramError(f"{operator.name} at {where} writes {counted(len(specs), 'variable')}, but out= names {len(targets)}")
        for index, (target, spec) in enumerate(zip(targets, specs, strict=True)):
            if target is None:
                targets[index] = self._result(operator, spec, gpus[index])
                continue
            if not isinstance(target, Symbol) or target.tracer is not self:
                raise ProgramError(f"out= of {operator.name} at {where} is not a variable of this program")
            if target.spec != spec:
                hint = None
                if target.dtype != spec.dtype:
                    operands = [f"{source.dtype.name} {source.name!r}" for source in sources]
                    operands += map(str, attributes.get("scalars", {}).values())
                    wide = too_wide(operator, sources, attributes, target.dtype)
                    mend = f"convert {listed(wide)} to {target.dtype.name}" if wide else f"give {spec.dtype.name} as out=, or leave it out"
                    hint = f"the operands are {listed(operands)}: {mend}"
                raise ProgramError(f"out= of {operator.name} at {where} is {target.spec}, but the result is {spec}", hint=hint)
            unused = target.place is None
            self._settle(target, operator.writes_to, operator, where)
            if unused:
                target.gpu = gpus[index]
            elif target.gpu != gpus[index]:
                message = f"out= of {operator.name} at {where} lies on GPU {target.gpu}, but the result on GPU {gpus[index]}"
                raise ProgramError(message, hint="write to a variable there, and copy it with ss.ops.to_gpu")
        return targets

    def _settle_gpus(self, operator: Operator, sources: Sequence[Symbol], new: Collection[Symbol], where: str) -> None:
        """Let inputs that nothing has used before lie on the GPU of the other arguments, else on that of `gpu`; refuse a mixture."""
        if operator.reads_from is MemoryPlace.HOST:
            return
        placed = {source.gpu: source for source in sources if all(source.base is not one.base for one in new)}
        at = next(iter(placed), self.gpu) if operator.writes_gpus is None else self.gpu
        for source in new:
            source.gpu = at
        if operator.writes_gpus is None and len(placed) > 1:
            first, second = list(placed)[:2]
            name = placed[second].name
            how = f"({name}, {first})" if name.isidentifier() else f", gpu={first}"
            raise ProgramError(
                f"{operator.name} at {where} takes {placed[first].name!r}, which lies on GPU {first}, "
                f"and {placed[second].name!r} on GPU {second}",
                hint=f"copy one of them first: ss.ops.to_gpu{how}",
            )
        if operator.writes_gpus is None and operator.writes_to is MemoryPlace.DEVICE and self.block not in (None, at):
            raise ProgramError(
                f"{operator.name} at {where} is in a block of ss.gpu({self.block}), and {placed[at].name!r} lies on GPU {at}",
                hint=f"copy it first, ss.ops.to_gpu({placed[at].name}, {self.block}), or move the operation out of the block",
            )

    @contextmanager
    def anywhere(self) -> Iterator[None]:
        """Let operations run where their operands lie, whatever block of `gpu` they are in."""
        before, self.block = self.block, None
        try:
            yield
        finally:
            self.block = before

    def _result(self, operator: Operator, spec: ArraySpec, gpu: int) -> Symbol:
        """Make a variable for a result: without axes it is a number, as NumPy's scalars are."""
        sharing = Aliasing.ARRAY if spec.shape else Aliasing.NUMBER
        return self.symbol(
            spec,
            f"{operator.name}_{len(self.operations)}",
            operator.writes_to,
            sharing=sharing,
            gpu=0 if operator.writes_to is MemoryPlace.HOST else gpu,
        )

    @staticmethod
    def _check_out(operator: Operator, sources: Sequence[Symbol], out: object, where: str) -> None:
        """Check that nothing is written through a view, nor over a variable that is read through one: threads go in another order there."""
        targets: list[Any] = list(out) if isinstance(out, tuple | list) else [out]
        for target in targets:
            if isinstance(target, SymbolView):
                raise ProgramError(
                    f"out= of {operator.name} at {where} is {target.name!r}, a view: operations write whole variables",
                    hint="join the parts of a new array with ss.ops.concatenate",
                )
            viewed = [source.name for source in sources if source.seen is not None and source.base is target]
            if viewed:
                raise ProgramError(
                    f"{operator.name} at {where} cannot write over {target.name!r} while it reads {viewed[0]!r}, a view of it",
                    hint="give another variable as out=, or copy the view first: .copy()",
                )

    @staticmethod
    def _check_aliases(operator: Operator, sources: Sequence[Symbol], targets: Sequence[Symbol], where: str) -> None:
        read = {source.id for source in sources}
        for index, target in enumerate(targets):
            if target.id in read and not operator.in_place:
                raise ProgramError(
                    f"{operator.name} at {where} cannot write over {target.name!r}, which it reads", hint="give another variable as out="
                )
            if any(target is other for other in targets[:index]):
                raise ProgramError(f"{operator.name} at {where} writes {target.name!r} twice", hint="give a variable for each result")

    @staticmethod
    def _settle(symbol: Symbol, place: MemoryPlace, operator: Operator, where: str) -> None:
        """Check that a variable lies where the operator wants it; an unused input comes to lie there."""
        if symbol.place is None:
            symbol.place = place
        if symbol.place is not place:
            copy = "ss.ops.to_device" if place is MemoryPlace.DEVICE else "ss.ops.to_host"
            raise ProgramError(
                f"{operator.name} at {where} wants {symbol.name!r} in {place.value} memory, but it lies in {symbol.place.value} memory",
                hint=f"copy it first with {copy}",
            )


_tracer: ContextVar[Tracer | None] = ContextVar("streamscope_tracer", default=None)


def current_tracer(what: str) -> Tracer:
    """Return the tracer of the function that is being traced; where there is none, the error says that ``what`` was called."""
    tracer = _tracer.get()
    if tracer is None:
        raise ProgramError(
            f"{what} was called outside a program", hint=f"run the function that calls it: ss.compare({user_function()}, ...)"
        )
    return tracer


def is_tracing() -> bool:
    """Tell whether a function is being traced."""
    return _tracer.get() is not None


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Collect the operations of the block with a tracer."""
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


def label(name: str) -> _GeneratorContextManager[None]:
    """Name the operations that are made in the block: ``with ss.label("attention"):`` inside a program.

    The name is the operations' `label`. Printed programs, audits, errors and timelines show it beside the operator's name. Blocks may be
    nested: their names are joined by ``/``. As a decorator, ``@ss.label("attention")`` names a function's operations.

    Parameters
    ----------
    name : str

    Raises
    ------
    ProgramError
        Used outside a program, or the name is not a string or is empty.

    Examples
    --------
    >>> @ss.program
    ... def step(x, w):
    ...     with ss.label("mlp"):
    ...         h = x @ w
    ...         with ss.label("gate"):
    ...             h = ss.ops.sigmoid(h)
    ...     return h + x
    >>> x, w = np.ones((2, 4, 4), "float32")
    >>> [(operation.name, operation.label) for operation in step.trace(x, w).operations]
    [('matmul', 'mlp'), ('sigmoid', 'mlp/gate'), ('add', '')]
    """
    given: Any = name
    if not isinstance(given, str) or not given.strip():
        raise ProgramError(f"ss.label at {user_line()}: name={shown(name)} must be a string that is not empty")
    return _labelling(printable(name.strip()))


@contextmanager
def _labelling(name: str) -> Iterator[None]:
    tracer = current_tracer("ss.label")
    before = tracer.label
    tracer.label = f"{before}/{name}" if before else name
    try:
        yield
    finally:
        tracer.label = before


def gpu(number: int) -> _GeneratorContextManager[None]:
    """Put variables on a GPU: ``with ss.gpu(1):`` inside a program; GPU 0 where there is no such block.

    `empty` and copies from the host come to lie there, and so do inputs that nothing has used yet, unless their first use places them:
    beside an argument that lies on a GPU, or in the list of a collective, whose places are GPUs. An operation runs on the GPU on which
    its arguments lie; in the block, that must be this one. `ops.to_gpu` copies from one to another. The number is the place in the
    device's list of GPUs.

    Parameters
    ----------
    number : int
        From 0 to 7.

    Raises
    ------
    ProgramError
        Used outside a program, or there is no such GPU.

    Examples
    --------
    >>> @ss.program
    ... def both(x, y):
    ...     with ss.gpu(1):
    ...         y = ss.ops.relu(y)
    ...     return ss.ops.relu(x), y
    >>> [operation.gpus for operation in both.trace(*np.ones((2, 4), "float32")).operations]
    [(1,), (0,)]
    """
    given = checked_gpu("ss.gpu", number)
    return _on_gpu(given)


def checked_gpu(what: str, number: object) -> int:
    """Return the number of a GPU that a user gave to ``what``."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MOST_GPUS:
        raise ProgramError(f"{what} at {user_line()}: {shown(number)} is no GPU", hint=f"give a number from 0 to {MOST_GPUS - 1}")
    return number


@contextmanager
def _on_gpu(number: int) -> Iterator[None]:
    tracer = current_tracer("ss.gpu")
    before, tracer.gpu, tracer.block = (tracer.gpu, tracer.block), number, number
    tracer.several = tracer.several or number > 0
    try:
        yield
    finally:
        tracer.gpu, tracer.block = before


def empty(shape: int | Sequence[int], dtype: Any = "float32", *, name: str = "empty") -> Symbol:
    """Make a variable in device memory, of the GPU of `gpu`, that an operation must write (``out=``) before another reads it.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype
    name : str
        Name in errors.

    Raises
    ------
    ProgramError
        Called outside a program, or the shape or the dtype is not possible.

    Examples
    --------
    >>> @ss.program
    ... def doubled(x):
    ...     y = ss.empty(x.shape, x.dtype)
    ...     ss.ops.add(x, x, out=y)
    ...     return y
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(doubled, np.array([1.0, 2.0])))
    [2. 4.]
    """
    tracer = current_tracer("ss.empty")
    extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    try:
        return tracer.symbol(ArraySpec(extents, dtype), name, MemoryPlace.DEVICE, written=False, gpu=tracer.gpu)
    except ProgramError as error:
        raise ProgramError(f"ss.empty at {user_line()}: {error.message}", hint=error.hint) from None
