"""The pushed engine: operations pushed one by one over variables, ordered by their reads and writes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, Literal, Self

from streamscope.arguments import whole_number
from streamscope.arrays import Array
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES
from streamscope.engines.host_totals import HostSums, HostTotals
from streamscope.engines.plan import USUAL_STREAMS, checked_streams
from streamscope.engines.pushed.arguments import (
    Asked,
    checked_gpu,
    checked_name,
    checked_place,
    checked_timeout,
    chosen_engine,
    listed,
)
from streamscope.engines.pushed.catalogue import Catalogue
from streamscope.engines.pushed.contents import Contents, Lifetimes
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.programs import PreparedPrograms
from streamscope.engines.pushed.pushing import Pusher
from streamscope.engines.pushed.scheduler import Scheduler, TimeLimit
from streamscope.engines.pushed.statistics import EngineStatistics
from streamscope.engines.pushed.templates import typed
from streamscope.engines.pushed.variable import PushedVariable
from streamscope.engines.pushed.watching import Watch
from streamscope.engines.pushed.workers import two_pools
from streamscope.errors import StreamscopeError
from streamscope.forks import tell_children
from streamscope.interrupts import deferred, when_gone
from streamscope.program.foreign import ForeignFunction
from streamscope.program.operation import Program
from streamscope.tracing import ProgramFunction

_NUMBER = attrgetter("_id")


class Engine:
    """Runs operations that are pushed one by one, and programs, on one GPU or several.

    Each operation names the variables that it reads and writes, and that alone orders it. A read comes after the last write, a write after
    all reads and writes before it. Everything else may overlap.

    ================  ================================================================================================================
    ``sync``          waits for the device after each device operation, and runs host operations on the calling thread
    ``async``         kernels on one stream, copies to and from the device on one each, host operations on worker threads; the host
                      waits only where it must: before a host operation, and in the waits below
    ``dual``          as ``async``, with kernels on ``streams`` streams
    ``graph``         operations that are pushed as in ``async``, since a graph needs a program; `run` replays graphs
    ``graph-dual``    likewise as in ``dual``
    ================  ================================================================================================================

    An operation that fails does not stop the engine. The variables that it was to write carry the fault. Operations that read them are
    skipped, and pass the fault on. The first wait that meets the fault raises it, once, with the operation's name and the line that pushed
    it. After that, operations that you push read the values that are there; operations that you pushed before stay skipped. A variable that
    is written without being read is good again as well. `wait_all` raises what no other wait has met. The device's own errors go to
    whichever wait comes first. An operation counts as failed if Ctrl-C interrupts its push.

    Several threads may use one engine. `close`, best called by ``with``, waits, stops the engine's threads and frees its memory. If you
    close none, Python cleans up when it lets the engine go. A forked child cannot use the engines of its parent: it gets EngineError, and
    `close` does nothing there.

    Parameters
    ----------
    name : str, optional
        By default what the environment variable ``STREAMSCOPE_ENGINE`` says, else ``"async"``.
    device : {"auto", "cuda", "simulated"} or Device
        A simulated device does one thing at a time: its engine's threads take turns.
    gpus : int or list of int, optional
        So many GPUs, or those with these numbers; one by default. A variable lies on one of them (`variable`), and so does a program's.
    streams : int, optional
        Compute streams of ``dual`` and ``graph-dual``: 2 by default, and up to 12 in `run` of captured code. Operations of priority have
        one more, of higher priority, in every engine.
    workers, priority_workers : int
        The most threads for host operations, and for those with ``priority > 0``.

    Raises
    ------
    EngineError
        The name is unknown, or a number is out of range.
    NoDeviceError
        The device is not on this machine.

    Examples
    --------
    >>> with ss.Engine("dual", device="simulated") as engine:
    ...     x = engine.variable(np.ones(3, np.float32))
    ...     y, z = engine.variable(x.spec), engine.variable(x.spec)
    ...     engine.push(ss.ops.add, reads=(x, x), writes=(y,))
    ...     engine.push(ss.ops.multiply, reads=(x, x), writes=(z,))  # It may overlap with the addition.
    ...     engine.push(ss.ops.subtract, reads=(y, z), writes=(x,))
    ...     engine.read(x)
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        device: str | Device = "auto",
        gpus: int | Sequence[int] | None = None,
        streams: int | None = None,
        workers: int = 2,
        priority_workers: int = 1,
    ) -> None:
        self._name = chosen_engine(name)
        asked = checked_streams(streams)
        workers, priority_workers = whole_number("workers", workers, 1), whole_number("priority_workers", priority_workers, 1)
        self._device = open_device(device, gpus=gpus)
        synchronous = ENGINES[self._name].waits
        pools = () if synchronous else two_pools(workers, priority_workers, self._device.use)
        issuer = Issuer(self._device, synchronous=synchronous, streams=(asked or USUAL_STREAMS) if ENGINES[self._name].takes_streams else 1)
        self._issuer = issuer
        self._scheduler = Scheduler(issuer, pools)
        self._catalogue = Catalogue(issuer)
        self._lifetimes = Lifetimes(issuer, self._scheduler, self._catalogue)
        self._watch = Watch(issuer, HostSums(f"engine {self._name!r} on {self._device.info.name}"))
        self._pusher = Pusher(issuer, self._scheduler, self._catalogue, self._lifetimes, self._watch)
        self._contents = Contents(issuer, self._scheduler, self._pusher, self._lifetimes)
        self._programs = PreparedPrograms(issuer, self._name, streams, self._watch.sums)
        issuer.memory.reclaim = self._programs.kept.evict
        self._local = threading.local()
        self._finalizer = when_gone(self, partial(self._scheduler.abandon, self._lifetimes), at_exit=True)
        tell_children(self)

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self._name

    @property
    def device(self) -> Device:
        """Where operations run."""
        return self._device

    @property
    def statistics(self) -> EngineStatistics:
        """Counts of the engine's work until now.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     x = engine.variable(np.ones(3))
        ...     for _ in range(10):
        ...         engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        ...     engine.statistics.cache_hits
        9
        """
        self._pusher.check_process()
        pusher, scheduler, programs, lanes = self._pusher, self._scheduler, self._programs, self._issuer.lanes
        with self._issuer.lock:
            memory = self._issuer.memory.statistics()
            return EngineStatistics(
                pushed=pusher.again + pusher.pushed,
                stream_waits=sum(lane.waits for lane in lanes.values()),
                host_waits=scheduler.host_waits,
                events_created=sum(lane.events for lane in lanes.values()),
                events_recorded=sum(lane.position for lane in lanes.values()),
                threads=sum(len(pool.threads) for pool in scheduler.pools),
                callbacks_pending=max(0, scheduler.callbacks),
                in_use_bytes=memory.in_use_bytes,
                high_water_bytes=memory.high_water_bytes,
                cache_hits=pusher.again + pusher.found,
                cache_misses=self._catalogue.misses,
                program_runs=programs.runs,
                programs_prepared=programs.prepared,
                programs_evicted=programs.kept.evicted,
                programs_kept=len(programs.kept),
            )

    @property
    def host_totals(self) -> HostTotals:
        """Running totals of the host's time by operation, of pushes and of programs; off until ``host_totals.start()``.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     x = engine.variable(np.ones(3))
        ...     engine.host_totals.start()
        ...     for _ in range(10):
        ...         engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        ...     [(row.name, row.count) for row in engine.host_totals.rows]
        [('add', 10)]
        """
        return HostTotals(self._watch.sums, self._watch.apply)

    def variable(
        self, values: Any, *, name: str | None = None, place: Literal["device", "host"] = "device", gpu: int = 0
    ) -> PushedVariable:
        """Make a variable.

        Parameters
        ----------
        values : array or ArraySpec
            Its values, or only shape and dtype: it must then be written before it is read.
        name : str, optional
            What errors call it.
        place : {"device", "host"}
            Device memory, or page-locked host memory.
        gpu : int
            Of an engine over several GPUs, the one in whose memory it lies. Operations run on the GPU of their variables.

        Raises
        ------
        ProgramError
            ``values`` is not an array of a supported dtype, ``place`` is unknown, ``name`` is not a string, or there is no such GPU.
        EngineError
            The engine was closed.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     engine.variable(np.ones((2, 3)), name="weights")
        <device variable 'weights' float64[2, 3], version 0>
        """
        self._enter()
        where = checked_place(place)
        return self._contents.made_of(values, where, checked_name(name), checked_gpu(gpu, self._issuer.gpus, where))

    def push(
        self,
        function: Callable[..., Any],
        *,
        reads: Iterable[PushedVariable] = (),
        writes: Iterable[PushedVariable] = (),
        priority: int = 0,
        name: str | None = None,
        **attributes: Any,
    ) -> None:
        """Push an operation: it is issued now, or queued where it must come after a host operation.

        It is a *host operation* if all variables lie in host memory and ``function`` is not an operator, or if `host_function` made it. A
        worker thread then calls ``function(*arrays, **attributes)`` with the NumPy arrays of ``reads``, which are read-only unless they are
        written, too. The function returns what is written: an array, a tuple, or None.

        Otherwise it is a *device operation*: an operator of Streamscope (``ss.ops.add``, one made with ``ss.operator``), or a function of
        several, as in a program. The engine traces it once for such shapes and attributes, and binds it once to these variables. Pushed
        again, it is only launched. So push the same function object again, not a new ``lambda`` each time.

        Over several GPUs, it runs on the GPU of its variables. ``ss.ops.to_gpu`` copies between two, and collectives as
        ``ss.ops.all_reduce`` take one variable a GPU. A collective is one operation: if one of its operands failed, it is skipped on all
        GPUs. Each GPU has a stream for collectives, with the same order on all.

        Parameters
        ----------
        function : callable
        reads, writes : sequence of PushedVariable
            The arguments, and what the results are written to. A variable in both is updated in place, where the function can; one that
            is written twice counts once.
        priority : int
            Of what is ready, the highest goes first. Above 0, kernels go on a stream of higher priority, copies to other GPUs on a second
            stream, and host operations have threads of their own.
        name : str, optional
            What errors call the operation.
        **attributes : object
            Passed on to the function.

        Raises
        ------
        ProgramError
            ``reads`` or ``writes`` are not this engine's variables, or were deleted, or were never written; or the function's results do
            not fit ``writes``. If the function itself raises, when it is traced or later, a wait raises that.
        EngineError
            The engine was closed.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     x, h = engine.variable(np.arange(3.0)), engine.variable(np.arange(3.0), place="host")
        ...     engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        ...     engine.push(ss.ops.to_host, reads=(x,), writes=(h,))
        ...     engine.push(lambda values, power: values**power, reads=(h,), writes=(h,), power=2)
        ...     engine.read(h)
        array([ 0.,  4., 16.])

        >>> with ss.Engine(device="simulated", gpus=2) as engine:
        ...     u, v = engine.variable(np.ones(2)), engine.variable(np.full(2, 5.0), gpu=1)
        ...     p, q = engine.variable(u.spec), engine.variable(u.spec, gpu=1)
        ...     engine.push(ss.ops.all_reduce, reads=(u, v), writes=(p, q), op="max")
        ...     engine.push(ss.ops.to_gpu, reads=(q,), writes=(u,), gpu=0)
        ...     engine.read(u)
        array([5., 5.])
        """
        if type(reads) is not tuple or type(writes) is not tuple:
            reads, writes = listed("reads", reads), listed("writes", writes)
        if not hasattr(self._local, "entered"):
            self._enter()
        key: tuple[Any, ...] | None = None
        try:
            key = (function, priority > 0, *map(_NUMBER, reads), None, *map(_NUMBER, writes))
            if not isinstance(priority, int):
                key = None  # The slower way says so.
            elif attributes or name is not None:
                key = (*key, name, *((attribute, typed(value)) for attribute, value in attributes.items()))
        except (AttributeError, TypeError):
            key = None  # Something is wrong with the arguments; the slower way says what.
        if key is None or not self._pusher.push_again(key, reads, writes, priority):
            self._pusher.push(Asked(function, reads, writes, priority, name, attributes), key)

    def push_async(
        self,
        function: Callable[..., Any],
        *,
        reads: Iterable[PushedVariable] = (),
        writes: Iterable[PushedVariable] = (),
        priority: int = 0,
        name: str | None = None,
        **attributes: Any,
    ) -> None:
        """Push a host function that starts something, returns at once, and calls back when it is done: a transfer, a file, a request.

        A worker thread calls ``function(done, *arrays, **attributes)``, and is free for others as soon as that returns. The operation ends
        when ``done`` is called, once, on any thread: ``done()``, ``done(results)`` with what is written, or ``done(error=exception)``.
        Until then it holds its variables as any host operation does: the arrays stay as they are, whatever was pushed behind it waits, and
        so do `wait_all` and `close`. If the function itself raises, the operation has failed. Under ``sync``, the push waits for the call.

        Parameters
        ----------
        function : callable
        reads, writes : sequence of PushedVariable
            In host memory. The arrays of ``reads`` are read-only.
        priority, name, **attributes
            As in `push`.

        Raises
        ------
        ProgramError
            A variable lies in device memory, or the function is an operator; else as in `push`.
        EngineError
            The engine was closed.

        Examples
        --------
        >>> import threading
        >>> def fetch(done, values):
        ...     threading.Timer(0.01, lambda: done(values * 2)).start()
        >>> with ss.Engine(device="simulated") as engine:
        ...     h = engine.variable(np.arange(3.0), place="host")
        ...     engine.push_async(fetch, reads=(h,), writes=(h,))
        ...     engine.read(h)
        array([0., 2., 4.])
        """
        self._enter()
        self._pusher.push_async(Asked(function, listed("reads", reads), listed("writes", writes), priority, name, attributes))

    def write(self, variable: PushedVariable, values: Any) -> None:
        """Replace a variable's values, in the order of the pushes; return when the values are copied away, not when they are there.

        Raises
        ------
        ProgramError
            Shape or dtype do not fit, or the variable cannot be used.
        EngineError
            The engine was closed.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     x = engine.variable(np.zeros(2))
        ...     engine.write(x, np.array([1.0, 2.0]))
        ...     engine.read(x)
        array([1., 2.])
        """
        self._enter()
        self._contents.write(variable, values)

    def read(self, variable: PushedVariable, *, timeout: float | None = None) -> Array:
        """Return a copy of a variable's values, as all that was pushed before leaves them.

        Parameters
        ----------
        variable : PushedVariable
        timeout : float, optional
            As in `wait_all`.

        Raises
        ------
        WaitTimeoutError
            It took longer.
        StreamscopeError
            The operation that made the values failed, or one before it.
        ProgramError
            The variable cannot be used, or nothing has written it.
        """
        self._enter()
        return self._contents.read(variable, self._limit(timeout))

    def delete(self, variable: PushedVariable) -> None:
        """Delete a variable after all that was pushed before; its memory is then free for others.

        Raises
        ------
        ProgramError
            It was deleted before, or is not this engine's.
        """
        self._enter()
        self._contents.delete(variable)

    def wait_to_read(self, variable: PushedVariable, *, timeout: float | None = None) -> None:
        """Block the host until all operations pushed before that write a variable are done, on the device too.

        Parameters
        ----------
        variable : PushedVariable
        timeout : float, optional
            As in `wait_all`.

        Raises
        ------
        WaitTimeoutError
            It took longer.
        StreamscopeError
            The operation that made its values failed, or one before it.
        """
        self._enter()
        self._contents.wait(variable, write=False, limit=self._limit(timeout))

    def wait_to_write(self, variable: PushedVariable, *, timeout: float | None = None) -> None:
        """Block the host until all operations pushed before that use a variable are done, on the device too.

        Parameters
        ----------
        variable : PushedVariable
        timeout : float, optional
            As in `wait_all`.

        Raises
        ------
        WaitTimeoutError
            It took longer.
        StreamscopeError
            The operation that made its values failed, or one before it.
        """
        self._enter()
        self._contents.wait(variable, write=True, limit=self._limit(timeout))

    def wait_all(self, *, timeout: float | None = None) -> None:
        """Block the host until all that was pushed is done, on the device too.

        Parameters
        ----------
        timeout : float, optional
            The most seconds that it may take: the device's clock counts for the device, which is virtual on the simulated one, and the
            machine's for host functions. Where that is over, collectives that are under way are aborted. Their results, and whatever was
            pushed behind them, carry that as a fault. Everything else goes on, and the engine can be used on.

        Raises
        ------
        WaitTimeoutError
            It took longer.
        StreamscopeError
            An operation failed, and no wait has raised it. The first is raised, with notes of the others.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     h = engine.variable(np.arange(3), place="host")
        ...     engine.push(lambda values: values[5], reads=(h,), writes=(h,), name="sixth")
        ...     engine.wait_all()
        Traceback (most recent call last):
            ...
        streamscope.errors.EngineError: sixth (pushed at ...) failed: IndexError: index 5 is out of bounds for axis 0 with size 3

        >>> with ss.Engine(device="simulated") as engine:
        ...     x = engine.variable(np.arange(3.0))
        ...     engine.push(ss.ops.sin, reads=(x,), writes=(x,))
        ...     engine.wait_all(timeout=1e-6)
        Traceback (most recent call last):
            ...
        streamscope.errors.WaitTimeoutError: waiting for all that was pushed took longer than 1.00 µs (wait longer, or ...)
        """
        self._enter()
        limit = self._limit(timeout)
        self._pusher.flush()
        self._scheduler.wait_all(limit)

    def bulk(self, size: int = 16) -> AbstractContextManager[None]:
        """Issue neighbouring device operations that the calling thread pushes in the block as one: one set of waits, one event.

        They are issued when there are ``size`` of them, before anything on the host or of another kind of stream, before a wait, and at the
        end of the block.

        Raises
        ------
        EngineError
            ``size`` is not a whole number above 0.

        Examples
        --------
        >>> with ss.Engine(device="simulated") as engine:
        ...     x = engine.variable(np.ones(3))
        ...     before = engine.statistics.events_recorded
        ...     with engine.bulk():
        ...         for _ in range(10):
        ...             engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        ...     engine.statistics.events_recorded - before
        1
        """
        self._enter()
        return self._pusher.bulk(whole_number("size", size, 1))

    def run(self, program: Callable[..., Any] | ProgramFunction | ForeignFunction | Program, /, *inputs: Any, **attributes: Any) -> Any:
        """Run a function or a program and return its outputs: a NumPy array, or a tuple, as the program does.

        The engine prepares it once for its shapes and attributes, so run the same function object again, not a new ``lambda`` each time.
        When memory gets short, preparations that were not used for longest go first (see `EngineStatistics`). Threads that run it replay
        side by side. A run does not wait for pushed operations.

        Parameters
        ----------
        program : callable, ProgramFunction, CapturedFunction or Program
            A function over variables, what ``ss.capture`` returned, or a program that was traced.
        *inputs : array
            NumPy or CuPy arrays; none for captured code, which has its own.
        **attributes : object
            Passed on to the function as they are, for example ``training=True``. Each value has a preparation of its own.

        Raises
        ------
        ProgramError
            It is not a function or a program, or the inputs do not fit it.
        KeywordError
            It has no attribute of such a name.
        DeviceError
            It cannot run on the device, or failed there.
        EngineError
            The engine was closed.

        Examples
        --------
        >>> with ss.Engine("graph", device="simulated") as engine:
        ...     engine.run(lambda x, w: x @ w + x, np.eye(2), np.ones((2, 2)))
        array([[2., 1.],
               [1., 2.]])
        """
        self._enter()
        self._pusher.flush()
        return self._programs.run(program, inputs, attributes)

    def close(self) -> None:
        """Wait for all pushed operations, stop the threads, free the memory; then raise faults that no wait has raised.

        It waits for operations that host operations push, too. It refuses those that other threads push, and leaves out their open bulks.
        Closing twice does nothing; closing again after Ctrl-C goes on.
        """
        if not self._finalizer.alive:
            return
        self._scheduler.forbid_inside()
        failure: StreamscopeError | None = None
        try:
            if not self._pusher.closed:
                self._pusher.flush()
            self._pusher.close()
            self._scheduler.wait_all()
        except StreamscopeError as error:
            failure = error
        # Without the lock, which workers take to end their turns.
        for pool in self._scheduler.pools:
            pool.join()
        with self._issuer.lock, deferred():
            self._finalizer.now()
            self._programs.kept.clear()
            self._catalogue.clear()
            self._lifetimes.clear()
        if failure is not None:
            raise failure

    def _leave_behind(self) -> None:
        """Refuse all calls, but to close it: this is a forked child (see `forks`)."""
        self._finalizer.cancel()
        self._pusher.foreign = True
        self._local = threading.local()  # So that the quick way of a push looks, too.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        # What ended the block is more than what it leads to here.
        with contextlib.suppress(StreamscopeError) if error is not None else contextlib.nullcontext():
            self.close()

    def __repr__(self) -> str:
        return f"<engine {self._name!r} on {self._device.info.name}{', closed' if self._pusher.closed else ''}>"

    def _limit(self, timeout: float | None) -> TimeLimit | None:
        return self._scheduler.limit(checked_timeout(timeout))

    def _enter(self) -> None:
        self._pusher.check_open()
        if not hasattr(self._local, "entered"):
            self._device.use()
            self._local.entered = True
