"""Communication between GPUs: copies from one to another, and collectives, in which several take part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any, TypeVar, cast

from streamscope.arguments import shown, size_in_bytes, whole_number
from streamscope.errors import ProgramError
from streamscope.ops.application import require
from streamscope.ops.selection import filled
from streamscope.program.collective import DTYPES, REDUCTIONS, Collective, CollectiveKind, Reduction
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import (
    AN_INPUT,
    Application,
    Attributes,
    Backward,
    Operator,
    applies_operators,
    checked_gpu,
    current_tracer,
    of_list,
)
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import one_piece
from streamscope.signatures import signature_of
from streamscope.words import a_kind, listed

MOST_PARTS = 1024
"""Into which ``bucket=`` cuts an array: thousands take longer to trace than anybody waits."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _called_as(example: str) -> Callable[[_Function], _Function]:
    """Make a function raise a `ProgramError` with an example of its call where its arguments do not fit its parameters."""

    def checked(function: _Function) -> _Function:
        signature = signature_of(function)

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                raise ProgramError(f"{function.__name__} at {user_line()}: {error}", hint=example) from None
            return function(*args, **options)

        return cast("_Function", called)

    return checked


def _copied(application: Application) -> tuple[Launch, ...]:
    cost = Cost(application.read_specs[0].nbytes, blocks=0, threads=0)
    (source,), (target,) = application.read_gpus, application.write_gpus
    launch = Launch(
        application.operation, 0, "to_gpu", LaunchKind.COPY_PEER, application.reads, application.writes, cost,
        lambda arrays: [arrays[0].copy()], gpu=source, to_gpu=target,
    )  # fmt: skip
    return (launch,)


def _of_to_gpu(backward: Backward) -> Sequence[Symbol | None]:
    return [to_gpu(backward.dy, backward.read_gpus[0])]


_to_gpu = Operator(
    "to_gpu", lambda specs, _: [specs[0]], _copied, reads_view=one_piece, writes_gpus=lambda _, attributes: [attributes["gpu"]],
    gradient=_of_to_gpu,
)  # fmt: skip


@applies_operators
@_called_as("to_gpu(x, 1)")
def to_gpu(x: object, gpu: int, *, out: object = None) -> Symbol:
    """Copy a variable to another GPU: peer to peer where the hardware can, else through the host.

    Parameters
    ----------
    x : variable
        In the memory of a GPU.
    gpu : int
        Where the copy lies. Where ``x`` lies there already, it is a variable of its own, copied by a kernel.
    out : variable, optional
        Where the result goes, on that GPU; by default a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, there is no such GPU, or the operands do not fit.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.to_gpu(x, 1) + 1).trace(np.ones(4)))
    <lambda>: 2 operations, 3 variables
         0  %1:float64[4] on GPU 1 = to_gpu(%0:float64[4] on GPU 0, gpu=1)    # ...
         1  %2:float64[4] on GPU 1 = add(%1:float64[4] on GPU 1, b=1)    # ...
    """
    from streamscope.ops.views import copy

    tracer = current_tracer("to_gpu")
    target = checked_gpu("ss.ops.to_gpu", gpu)
    tracer.several = tracer.several or target > 0
    if isinstance(x, Symbol) and (x.gpu if x.place is not None else tracer.gpu) == target:
        with tracer.anywhere():
            return copy(x, out=out)
    return cast("Symbol", _to_gpu(x, out=out, gpu=target))


def _collective(name: CollectiveKind, infer: Any, gradient: Callable[[Backward], Sequence[Symbol | None]]) -> Operator:
    """Return the operator of a collective."""

    def build(application: Application) -> tuple[Launch, ...]:
        return _parts(name, application)

    return Operator(
        name, infer, build, reads_view=one_piece, writes_gpus=lambda _, attributes: attributes["result_gpus"], gradient=gradient
    )


def _parts(name: CollectiveKind, application: Application) -> tuple[Launch, ...]:
    """Return one launch a GPU: each reads its own operand and writes its own result."""
    attributes, specs = application.attributes, application.read_specs
    gpus = attributes["gpus"]
    nbytes = specs[0].nbytes * (len(gpus) if name == "all_gather" else 1)
    told = {key: attributes[key] for key in ("op", "root", "priority") if key in attributes}
    collective = Collective(name, gpus, nbytes, **told)
    reads, writes = iter(application.reads), iter(application.writes)
    cost = Cost(specs[0].nbytes, blocks=1, threads=512)
    launches = []
    for part, gpu in enumerate(gpus):
        read = (next(reads),) if collective.reads(part) else ()
        written = (next(writes),) if collective.writes(part) else ()
        launches.append(
            Launch(
                application.operation, part, name, LaunchKind.COLLECTIVE, read, written, cost, None,
                library=True, gpu=gpu, collective=collective, exact=name not in ("all_reduce", "reduce_scatter"),
            )
        )  # fmt: skip
    return tuple(launches)


def _same(name: str, specs: Sequence[ArraySpec]) -> ArraySpec:
    """Return the spec that all operands have."""
    different = list(dict.fromkeys(map(str, specs)))
    require(len(different) == 1, name, f"its operands differ: {listed(different)}", "give each GPU's part the same shape and dtype")
    spec = specs[0]
    require(
        spec.dtype.name in DTYPES, name, f"NCCL has no {spec.dtype.name}", f"convert it first, to one of {', '.join(DTYPES)}: x.astype(...)"
    )
    return spec


def _infer_same(name: str) -> Any:
    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        spec = _same(name, specs)
        if attributes.get("op") == "mean":
            require(spec.dtype.kind == "f", name, f"the mean of {spec.dtype.name} is no {spec.dtype.name}", 'op="sum", or convert it first')
        return [spec] * len(attributes["result_gpus"])

    return infer


def _infer_gathered(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    spec, count = _same("all_gather", specs), len(specs)
    require(bool(spec.shape), "all_gather", "its operands have no axis to be joined along", "reshape them: x.reshape(1)")
    return [ArraySpec((spec.shape[0] * count, *spec.shape[1:]), spec.dtype)] * count


def _divided(name: str, specs: Sequence[ArraySpec]) -> ArraySpec:
    """Return the spec of all operands, whose first axis can be divided among the GPUs."""
    spec, count = _same(name, specs), len(specs)
    require(bool(spec.shape), name, "its operands have no axis to be cut along", "reshape them: x.reshape(1)")
    extent = spec.shape[0]
    require(extent % count == 0, name, f"the first axis has {extent} entries, for {count} GPUs", "pad it to a multiple of them")
    return spec


def _infer_scattered(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    spec = _infer_reduced("reduce_scatter", _divided("reduce_scatter", specs), attributes)
    return [ArraySpec((spec.shape[0] // len(specs), *spec.shape[1:]), spec.dtype)] * len(specs)


def _infer_reduced(name: str, spec: ArraySpec, attributes: Attributes) -> ArraySpec:
    (inferred,) = _infer_same(name)([spec], {**attributes, "result_gpus": (0,)})
    return cast("ArraySpec", inferred)


def _infer_exchanged(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    return [_divided("all_to_all", specs)] * len(specs)


def _upstream(backward: Backward) -> list[Symbol]:
    """Return the gradients of all results; zeros, copied from another GPU, where there is none."""
    there = next(gradient for gradient in backward.upstream if gradient is not None)
    zeros = functools.cache(lambda: filled(0, there.shape, there))
    gpus = backward.attributes["result_gpus"]
    return [to_gpu(zeros(), gpu) if each is None else each for each, gpu in zip(backward.upstream, gpus, strict=True)]


def _of_all_reduce(backward: Backward) -> Sequence[Symbol | None]:
    op, priority = backward.attributes["op"], backward.attributes["priority"]
    require(op in ("sum", "mean"), "all_reduce", f"op={op!r} has no gradient", 'use op="sum" or "mean"')
    return all_reduce(_upstream(backward), op, priority=priority)


def _of_reduce_scatter(backward: Backward) -> Sequence[Symbol | None]:
    op, priority = backward.attributes["op"], backward.attributes["priority"]
    require(op in ("sum", "mean"), "reduce_scatter", f"op={op!r} has no gradient", 'use op="sum" or "mean"')
    gradients = _upstream(backward)
    return all_gather([each / len(gradients) for each in gradients] if op == "mean" else gradients, priority=priority)


def _of_all_gather(backward: Backward) -> Sequence[Symbol | None]:
    return reduce_scatter(_upstream(backward), priority=backward.attributes["priority"])


def _of_all_to_all(backward: Backward) -> Sequence[Symbol | None]:
    return all_to_all(_upstream(backward), priority=backward.attributes["priority"])


def _of_broadcast(backward: Backward) -> Sequence[Symbol | None]:
    return [all_reduce(_upstream(backward), priority=backward.attributes["priority"])[backward.attributes["root"]]]


def _of_send(backward: Backward) -> Sequence[Symbol | None]:
    return [send(backward.dy, backward.read_gpus[0], priority=backward.attributes["priority"])]


_all_reduce = _collective("all_reduce", _infer_same("all_reduce"), _of_all_reduce)
_all_gather = _collective("all_gather", _infer_gathered, _of_all_gather)
_reduce_scatter = _collective("reduce_scatter", _infer_scattered, _of_reduce_scatter)
_all_to_all = _collective("all_to_all", _infer_exchanged, _of_all_to_all)
_broadcast = _collective("broadcast", _infer_same("broadcast"), _of_broadcast)
_send = _collective("send", _infer_same("send"), _of_send)


def _members(name: str, variables: object, op: str | None = None) -> tuple[list[Symbol], tuple[int, ...]]:
    """Return the variables of a collective, one a GPU, and their GPUs.

    Inputs that nothing has used yet come to lie on the GPU of their place in the list.
    """
    tracer = current_tracer(name)
    where = f"{name} at {user_line()}"
    if not isinstance(variables, list | tuple):
        raise ProgramError(f"{where} takes a list of variables, one a GPU, not {a_kind(variables)}", hint=f"{name}([u, v])")
    for each in variables:
        if not isinstance(each, Symbol):
            raise ProgramError(f"{where} got {a_kind(each)} instead of a variable of the program", hint=AN_INPUT)
    if len(variables) < 2:
        raise ProgramError(f"{where} got {len(variables)} variable{'s' * (not variables)}", hint="give one for each of two or more GPUs")
    for place, each in enumerate(variables):
        if each.place is None:
            each.place, each.gpu = MemoryPlace.DEVICE, checked_gpu(name, place)
        if each.place is not MemoryPlace.DEVICE:
            raise ProgramError(f"{where} wants {each.name!r} on a GPU, but it lies in host memory", hint="copy it with ss.ops.to_device")
    gpus = tuple(each.gpu for each in variables)
    twice = [gpu for gpu in gpus if gpus.count(gpu) > 1]
    if twice:
        names = [repr(each.name) for each in variables if each.gpu == twice[0]]
        free = min({*range(len(gpus))} - {*gpus})
        computed = f"compute {names[-1]} in a block, with ss.gpu({free}):, or " if len(set(names)) > 1 else ""
        hint = f"one variable a GPU: {computed}copy {names[-1]} to GPU {free} with ss.ops.to_gpu"
        raise ProgramError(f"{where} got {listed(names)}, which {'both' if len(names) == 2 else 'all'} lie on GPU {twice[0]}", hint=hint)
    if op is not None and op not in REDUCTIONS:
        raise ProgramError(f"{where}: op={shown(op)} is unknown", hint=f"use one of {', '.join(REDUCTIONS)}")
    tracer.several = True
    return list(variables), gpus


def _applied(
    operator: Operator, members: Sequence[Symbol], gpus: tuple[int, ...], out: Sequence[object] | None, priority: object, **others: Any
) -> list[Symbol]:
    attributes = {"gpus": gpus, "result_gpus": gpus, "priority": _whole(operator.name, "priority", priority), **others}
    return list(current_tracer(operator.name).apply(operator, members, attributes, None if out is None else list(out)))


@of_list
@_called_as("all_reduce([u, v])")
def all_reduce(
    variables: Sequence[object],
    op: Reduction = "sum",
    *,
    bucket: int | str | None = None,
    priority: int = 0,
    out: Sequence[object] | None = None,
) -> list[Symbol]:
    """Reduce variables on several GPUs element by element; each GPU gets the result.

    Its gradient is the `all_reduce` of the gradients.

    Parameters
    ----------
    {on_gpus}
    op : {"sum", "mean", "min", "max"}
        ``"mean"`` for floating-point dtypes only. Sums may differ in their rounding from GPU to GPU no more than from NumPy.
    bucket : int or str, optional
        The most at once, in bytes or as ``"25 MB"``: the array is cut into slices, each a collective of its own, so that others may go
        between them. More than 1,024 slices are refused.
    {collective_order}

    {gpus_misfit}

    Examples
    --------
    >>> @ss.program
    ... def summed(u, v):
    ...     return ss.ops.all_reduce([u, v])
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(summed, np.array([1.0, 2.0]), np.array([10.0, 20.0])))
    (array([11., 22.]), array([11., 22.]))
    """
    members, gpus = _members("all_reduce", variables, op)
    if bucket is None:
        return _applied(_all_reduce, members, gpus, out, priority, op=op)
    require(out is None, "all_reduce", "bucket= and out= were both given", "leave one of them out")
    nbytes = size_in_bytes(f"bucket= of all_reduce at {user_line()}", bucket, error=ProgramError)
    size, itemsize = members[0].size, members[0].dtype.itemsize
    step = max(1, nbytes // itemsize)
    if ceil(size / step) > MOST_PARTS:
        least = ceil(size / MOST_PARTS)
        said = f"bucket={shown(bucket)} of all_reduce at {user_line()} cuts {members[0].name!r} into {ceil(size / step):,} parts"
        hint = f"at most {MOST_PARTS:,}; the smallest bucket is {least * itemsize:,} bytes, {ceil(size / least):,} parts"
        raise ProgramError(said, hint=hint)
    if step >= size:
        return _applied(_all_reduce, members, gpus, None, priority, op=op)
    return _in_slices(members, gpus, step, {"op": op, "priority": _whole("all_reduce", "priority", priority)})


def _in_slices(members: Sequence[Symbol], gpus: tuple[int, ...], step: int, given: dict[str, Any]) -> list[Symbol]:
    tracer = current_tracer("all_reduce")
    _same("all_reduce", [member.spec for member in members])
    name = f"all_reduce_{len(tracer.operations)}"
    results = [tracer.symbol(each.spec, name, MemoryPlace.DEVICE, written=False, gpu=gpu) for each, gpu in zip(members, gpus, strict=True)]
    attributes = {"gpus": gpus, "result_gpus": gpus, **given}
    for start in range(0, members[0].size, step):
        operands, targets = ([each.reshape(-1)[start : start + step] for each in group] for group in (members, results))
        tracer.apply_to_parts(_all_reduce, operands, attributes, targets)
    return results


@of_list
@_called_as("all_gather([u, v])")
def all_gather(variables: Sequence[object], *, priority: int = 0, out: Sequence[object] | None = None) -> list[Symbol]:
    """Join variables on several GPUs along their first axis; each GPU gets all of them.

    Its gradient is the `reduce_scatter` of the gradients.

    Parameters
    ----------
    {on_gpus}
    {collective_order}

    {gpus_misfit}

    Examples
    --------
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(ss.program(lambda u, v: ss.ops.all_gather([u, v])[1]), np.array([1.0]), np.array([2.0])))
    [1. 2.]
    """
    members, gpus = _members("all_gather", variables)
    return _applied(_all_gather, members, gpus, out, priority)


@of_list
@_called_as("reduce_scatter([u, v])")
def reduce_scatter(
    variables: Sequence[object], op: Reduction = "sum", *, priority: int = 0, out: Sequence[object] | None = None
) -> list[Symbol]:
    """Reduce variables on several GPUs; each GPU gets its own part of the result, cut along the first axis.

    Its gradient is the `all_gather` of the gradients. The number of GPUs must divide the extent of the first axis.

    Parameters
    ----------
    {on_gpus}
    op : {"sum", "mean", "min", "max"}
        ``"mean"`` for floating-point dtypes only.
    {collective_order}

    {gpus_misfit}

    Examples
    --------
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(ss.program(lambda u, v: ss.ops.reduce_scatter([u, v])), np.array([1.0, 2.0]), np.array([10.0, 20.0])))
    (array([11.]), array([22.]))
    """
    members, gpus = _members("reduce_scatter", variables, op)
    return _applied(_reduce_scatter, members, gpus, out, priority, op=op)


@of_list
@_called_as("all_to_all([u, v])")
def all_to_all(variables: Sequence[object], *, priority: int = 0, out: Sequence[object] | None = None) -> list[Symbol]:
    """Exchange parts of variables among GPUs: part ``j`` of the variable on GPU ``i`` becomes part ``i`` of the result on GPU ``j``.

    Its gradient is the `all_to_all` of the gradients. The number of GPUs must divide the extent of the first axis.

    Parameters
    ----------
    {on_gpus}
    {collective_order}

    {gpus_misfit}

    Examples
    --------
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(ss.program(lambda u, v: ss.ops.all_to_all([u, v])), np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    (array([1., 3.]), array([2., 4.]))
    """
    members, gpus = _members("all_to_all", variables)
    return _applied(_all_to_all, members, gpus, out, priority)


@applies_operators
@_called_as("broadcast(x, [0, 1])")
def broadcast(x: object, gpus: int | Sequence[int], *, priority: int = 0, out: Sequence[object] | None = None) -> list[Symbol]:
    """Copy a variable to several GPUs at once; each gets a variable of its own.

    Its gradient is the sum of the gradients, `all_reduce`, on the GPU of ``x``.

    Parameters
    ----------
    x : variable
        On one of the GPUs.
    gpus : int or sequence of int
        The GPUs that get it, that of ``x`` among them, each once. A number is that of the first GPUs: ``2`` is ``[0, 1]``.
    {collective_order}

    {gpus_misfit}

    Examples
    --------
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.broadcast(x, [0, 1])[1] * 2), np.array([1.0, 2.0])))
    [2. 4.]
    """
    source, where = _source("broadcast", x), f"broadcast at {user_line()}"
    wrong = f"gpus={shown(gpus)} must be two GPUs or more, each once", "gpus=2, or gpus=[0, 1]"
    wanted = cast("Iterable[int]", range(gpus) if type(gpus) is int else gpus)
    require(isinstance(wanted, Iterable), where, *wrong)
    given = tuple(checked_gpu("ss.ops.broadcast", each) for each in wanted)
    require(len(set(given)) == len(given) > 1, where, *wrong)
    require(
        source.gpu in given,
        where,
        f"{source.name!r} lies on GPU {source.gpu}, which is not in gpus={shown(gpus)}",
        f"name GPU {source.gpu} in gpus=, too, or copy it to one of them first: ss.ops.to_gpu",
    )
    return _applied(_broadcast, [source], given, out, priority, root=given.index(source.gpu))


@applies_operators
@_called_as("send(x, 1)")
def send(x: object, gpu: int, *, priority: int = 0, out: object = None) -> Symbol:
    """Send a variable to another GPU by NCCL, whose kernels run on both; the result is received there. `to_gpu` uses copy engines.

    Its gradient is the `send` of the gradient the other way.

    Parameters
    ----------
    x : variable
    gpu : int
        Another GPU than that of ``x``.
    priority : int
        As in `all_reduce`.
    out : variable, optional
        Where the result goes, on that GPU; by default a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, the dtype is none that NCCL has, or there is no such other GPU.

    Examples
    --------
    >>> with ss.Engine(device="simulated", gpus=2) as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.send(x, 1)), np.array([1.0, 2.0])))
    [1. 2.]
    """
    source, target = _source("send", x), checked_gpu("ss.ops.send", gpu)
    require(source.gpu != target, f"send at {user_line()}", f"{source.name!r} lies on GPU {target} already", "leave the send out")
    given = {"gpus": (source.gpu, target), "result_gpus": (target,), "priority": _whole("send", "priority", priority)}
    return cast("Symbol", current_tracer("send").apply(_send, [source], given, out))


def _source(name: str, x: object) -> Symbol:
    """Return the one variable of a collective; an input that nothing has used comes to lie on the GPU of `ss.gpu`."""
    tracer = current_tracer(name)
    if not isinstance(x, Symbol):
        raise ProgramError(f"{name} at {user_line()} got {a_kind(x)} instead of a variable of the program", hint=AN_INPUT)
    if x.place is None:
        x.place, x.gpu = MemoryPlace.DEVICE, tracer.gpu
    tracer.several = True
    return x


def _whole(name: str, option: str, value: object) -> int:
    return whole_number(f"{name} at {user_line()}: {option}", value, error=ProgramError)
