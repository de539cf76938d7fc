"""The link model of a host: how long collectives and copies between GPUs take, as data with its provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from streamscope.devices.cost_model import Provenance
from streamscope.devices.piecewise_linear import Points, checked_points, interpolate
from streamscope.errors import DeviceError
from streamscope.program.collective import CollectiveKind
from streamscope.trace.collectives import bus_factor
from streamscope.words import listed

_BUILT_IN = Path(__file__).parent / "data"
COLLECTIVES: tuple[str, ...] = get_args(CollectiveKind)
LINKS = ("nvlink", "pcie", "host")
"""Ways between two GPUs: NVLink, PCIe from GPU to GPU, and through the host's memory."""
NEIGHBOURS = ("matmul", "elementwise")
"""Kernels that were measured beside a collective: one that computes on all multiprocessors, and one that memory limits."""
PRIORITIES = ("equal", "communication")
"""Of the streams of kernels and collectives: equal, or communication first. Kernels first is as equal: it was measured, too."""
_LAST, _EARLIER = (1_500.0, -0.14), (-3_500.0, -0.075)
"""When the part of a collective begins that NCCL launches last, counted from the return of its call, in ns and as a share of the call; and
how much earlier each part begins that is launched before it. NCCL launches part 0 last. Measured by CUPTI on two H200."""
_FROM = "measure it anew with `streamscope calibrate --gpus 2`"


@dataclass(frozen=True)
class LinkModel:
    """The costs of the links between the GPUs of one host, and of the collectives over them.

    Sizes of collectives are those of nccl-tests: of an all-gather its whole result, of a reduce-scatter its whole operand.

    Attributes
    ----------
    collective_points : mapping of int to mapping of str to pairs (bytes, ns)
        Durations of collectives by the number of GPUs that took part, and by kind. Piecewise linear, the last slope goes on.
    channel_points : mapping of int to mapping of str to pairs (bytes, blocks)
        Blocks of NCCL's kernel on each GPU, one a channel.
    channel_threads : int
        Threads of such a block.
    hop_ns : float
        What each further step of a ring adds, beside its bytes.
    peer_points : mapping of str to pairs (bytes, ns)
        Durations of copies from one GPU to another, by link.
    call_points : pairs (GPUs, ns)
        Host: a collective over so many GPUs, put on all their streams in one group.
    graph_call_ns, graph_join_ns : float
        A graph over several GPUs, which begins and ends on one of them. Host: launching it. GPUs: its time beyond that of its nodes,
        if it waits for work before it on its stream. On idle GPUs, the launch hides that.
    graph_gpu_ns, graph_part_ns : float
        Host: by how much that launch takes longer for each GPU beyond the second, and for each GPU's part of a collective. The first
        GPUs begin before that.
    graph_collective_ns, graph_behind_ns, graph_copy_ns, graph_arrival_ns : float
        In such a graph, GPUs: by how much later than another kernel a part of a collective begins behind a kernel, and behind another
        collective of its communicator; by how much later a copy between GPUs begins; and how long after its end the work begins that waits
        for it on the other GPU.
    kernel_speed, collective_speed : mapping of str to mapping of str to pairs (bytes, share)
        Speed of kernels beside all-reduces of so many bytes, and of the all-reduces beside the kernels, as shares of their speeds alone.
        By the priorities of their streams, and by kind of kernel: a matrix product or an element-wise one. Waiting for multiprocessors
        is in it: at equal priority, an all-reduce waits for the last blocks of a kernel that fills the chip.
    provenance : Provenance
    speed : float
        Speed of the links, as a multiple of the measured one; see `with_link_speed`.

    Raises
    ------
    DeviceError
        A number is missing, of the wrong type or impossible.

    Examples
    --------
    >>> from streamscope.devices.link_model import LinkModel
    >>> links = LinkModel.load("h100")
    >>> links.is_measured(2), links.is_measured(8)
    (True, False)
    >>> links.collective_ns("all_reduce", 1 << 26, 2) < links.collective_ns("all_reduce", 1 << 26, 8)
    True
    """

    collective_points: Mapping[int, Mapping[str, Points]]
    channel_points: Mapping[int, Mapping[str, Points]]
    channel_threads: int
    hop_ns: float
    peer_points: Mapping[str, Points]
    call_points: Points
    graph_call_ns: float
    graph_join_ns: float
    graph_gpu_ns: float
    graph_part_ns: float
    graph_collective_ns: float
    graph_behind_ns: float
    graph_copy_ns: float
    graph_arrival_ns: float
    kernel_speed: Mapping[str, Mapping[str, Points]]
    collective_speed: Mapping[str, Mapping[str, Points]]
    provenance: Provenance
    speed: float = 1.0

    def __post_init__(self) -> None:
        for name in ("collective_points", "channel_points"):
            tables = {int(gpus): _checked_curves(name, table, COLLECTIVES) for gpus, table in getattr(self, name).items()}
            if min(tables, default=0) < 2:
                raise DeviceError(f"link model: {name} is of {listed([str(gpus) for gpus in tables]) or 'no'} GPUs, expected 2 or more")
            object.__setattr__(self, name, tables)
        object.__setattr__(self, "peer_points", _checked_curves("peer_points", self.peer_points, LINKS))
        for name in ("kernel_speed", "collective_speed"):
            _check_keys(name, getattr(self, name), PRIORITIES)
            tables = {first: _checked_curves(name, table, NEIGHBOURS) for first, table in getattr(self, name).items()}
            object.__setattr__(self, name, tables)
        object.__setattr__(self, "call_points", checked_points("link model: call_points", self.call_points))
        for name in (
            "channel_threads",
            "hop_ns",
            "speed",
            *(item.name for item in fields(self) if item.name.startswith("graph_")),
        ):
            _check_positive(name, getattr(self, name))

    @classmethod
    def load(cls, source: str | Path = "h100") -> LinkModel:
        """Read a link model: a built-in one by name, or any by the path of its JSON file.

        Raises
        ------
        DeviceError
            There is no such model, or its file is not a link model.
        """
        path = Path(source)
        return _read(path) if path.suffix == ".json" else _built_in(str(source))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinkModel:
        """Make a link model from the values of `to_dict`.

        Raises
        ------
        DeviceError
            A key is missing or unknown, or a value impossible.
        """
        values = {"speed": 1.0, **values}  # Files have those of measured links.
        _check_keys("link model", values, [item.name for item in fields(cls)])
        _check_keys("provenance", values["provenance"], [item.name for item in fields(Provenance)])
        return cls(**{**values, "provenance": Provenance(**values["provenance"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)} | {"provenance": asdict(self.provenance)}

    def is_measured(self, gpus: int) -> bool:
        """Tell whether collectives over so many GPUs were measured. Others follow from the formula of a ring."""
        return gpus in self.collective_points

    def collective_ns(self, kind: str, nbytes: int, gpus: int) -> float:
        """Return how long a collective takes, in ns, from when its last part begins.

        Over as many GPUs as were measured, the table is interpolated. Over other numbers it is read at the size that sends as many bytes
        over each link, and each further step of the ring adds `hop_ns`.

        Raises
        ------
        DeviceError
            The kind is unknown, or fewer than 2 GPUs take part.
        """
        measured = self._nearest(kind, gpus)
        steps = _steps(kind, gpus) - _steps(kind, measured)
        return interpolate(self.collective_points[measured][kind], _as_measured(kind, nbytes, gpus, measured)) + steps * self.hop_ns

    def channels(self, kind: str, nbytes: int, gpus: int) -> int:
        """Return how many blocks a collective's kernel has on each GPU, so how many multiprocessors it holds.

        Raises
        ------
        DeviceError
            The kind is unknown, or fewer than 2 GPUs take part.
        """
        measured = self._nearest(kind, gpus)
        return max(1, round(interpolate(self.channel_points[measured][kind], _as_measured(kind, nbytes, gpus, measured))))

    def bus_gb_s(self, kind: str, nbytes: int, gpus: int) -> float:
        """Return a collective's bus bandwidth by NCCL's definition, in GB/s: the bytes over each link in its time."""
        return nbytes * bus_factor(kind, gpus) / self.collective_ns(kind, nbytes, gpus)

    def peer_copy_ns(self, nbytes: int, link: str = "nvlink") -> float:
        """Return how long a copy from one GPU to another takes, in ns.

        Raises
        ------
        DeviceError
            The link is unknown.
        """
        _check_choice("link", link, LINKS)
        return interpolate(self.peer_points[link], nbytes)

    def call_ns(self, gpus: int) -> float:
        """Return the host's time for a collective over so many GPUs, in ns."""
        return interpolate(self.call_points, gpus)

    def graph_launch_ns(self, gpus: int, parts: int) -> float:
        """Return the host's time for launching a graph over so many GPUs beyond that on one, in ns; ``parts`` are those of collectives."""
        return self.graph_call_ns + self.graph_tail_ns(gpus, parts) if gpus > 1 else 0.0

    def graph_tail_ns(self, gpus: int, parts: int) -> float:
        """Return the part of the launch, its last, in which the first GPUs run already, in ns; measured on 2 and 4 GPUs."""
        return max(0, gpus - 2) * self.graph_gpu_ns + parts * self.graph_part_ns

    def kernel_speed_beside(self, neighbour: str, nbytes: int, priority: str = "equal") -> float:
        """Return a kernel's speed beside all-reduces of so many bytes, as a share of its speed alone.

        Raises
        ------
        DeviceError
            The neighbour is neither ``"matmul"`` nor ``"elementwise"``, or the priority neither ``"equal"`` nor ``"communication"``.
        """
        return _beside(self.kernel_speed, neighbour, nbytes, priority)

    def collective_speed_beside(self, neighbour: str, nbytes: int, priority: str = "equal") -> float:
        """Return the speed of all-reduces of so many bytes beside kernels, as a share of their speed alone.

        Raises
        ------
        DeviceError
            The neighbour is neither ``"matmul"`` nor ``"elementwise"``, or the priority neither ``"equal"`` nor ``"communication"``.
        """
        return _beside(self.collective_speed, neighbour, nbytes, priority)

    def with_link_speed(self, factor: float) -> LinkModel:
        """Return the model with links that are so many times as fast; latencies stay.

        Examples
        --------
        >>> from streamscope.devices.link_model import LinkModel
        >>> links = LinkModel.load()
        >>> half = links.with_link_speed(0.5)
        >>> round(half.collective_ns("all_reduce", 1 << 26, 2) / links.collective_ns("all_reduce", 1 << 26, 2), 1)
        2.0
        """
        _check_positive("factor of the link speed", factor)

        def faster(points: Points) -> Points:
            least = points[0][1]
            return tuple((size, least + (ns - least) / factor) for size, ns in points)

        tables = {gpus: {kind: faster(points) for kind, points in table.items()} for gpus, table in self.collective_points.items()}
        copies = {link: faster(points) for link, points in self.peer_points.items()}
        return replace(self, collective_points=tables, peer_points=copies, speed=self.speed * factor)

    def speed_of(self, link: str) -> float:
        """Return the speed of a link for large copies, as a multiple of NVLink's: of PCIe it is below 1.

        Raises
        ------
        DeviceError
            The link is unknown.
        """
        _check_choice("link", link, LINKS)
        (size, _), (largest, _) = self.peer_points["nvlink"][-2:]
        nvlink_ns, ns = (self.peer_copy_ns(int(largest), one) - self.peer_copy_ns(int(size), one) for one in ("nvlink", link))
        return nvlink_ns / ns

    def _nearest(self, kind: str, gpus: int) -> int:
        """Return the number of GPUs whose table serves: the largest measured one up to ``gpus``, else the smallest."""
        _check_choice("collective", kind, COLLECTIVES)
        if gpus < 2:
            raise DeviceError(f"a collective over {gpus} GPUs", hint="it needs 2 or more")
        return max((one for one in self.collective_points if one <= gpus), default=min(self.collective_points))


def part_begins_ns(part: int, call_ns: float) -> float:
    """Return when a part of a collective begins on an idle stream, counted from the return of the call for all parts, in ns."""
    constant_ns, share = (last + part * earlier for last, earlier in zip(_LAST, _EARLIER, strict=True))
    return max(-call_ns, constant_ns + share * call_ns)


def _steps(kind: str, gpus: int) -> int:
    """Return the steps of a ring, one after the other; an all-to-all and a send go straight to their peers."""
    if kind in ("all_to_all", "send"):
        return 1
    return (2 if kind == "all_reduce" else 1) * (gpus - 1)


def _as_measured(kind: str, nbytes: int, gpus: int, measured: int) -> float:
    """Return the size that sends as many bytes over a link, over as many GPUs as were measured."""
    return nbytes * bus_factor(kind, gpus) / bus_factor(kind, measured)


def _beside(table: Mapping[str, Mapping[str, Points]], neighbour: str, nbytes: int, priority: str) -> float:
    """Return a share, which is level after the last size too."""
    _check_choice("neighbour", neighbour, NEIGHBOURS)
    _check_choice("priority", priority, PRIORITIES)
    points = table[priority][neighbour]
    return interpolate(points, min(nbytes, points[-1][0]))


def _read(path: Path) -> LinkModel:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = listed(sorted(file.stem.removeprefix("links_") for file in _BUILT_IN.glob("links_*.json")))
        raise DeviceError(f"no link model {str(path)!r}: {error.strerror}", hint=f"give a path, or one of: {known}") from error
    except ValueError as error:
        raise DeviceError(f"link model {str(path)!r} is not JSON: {error}", hint=_FROM) from error
    return LinkModel.from_dict(values)


@cache
def _built_in(name: str) -> LinkModel:
    """Return a built-in model, read once: every simulated host asks for it."""
    return _read(_BUILT_IN / f"links_{name}.json")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [list(point) for point in value] if isinstance(value, tuple) else value


def _checked_curves(name: str, curves: object, keys: tuple[str, ...]) -> dict[str, Points]:
    _check_keys(name, curves, keys)
    assert isinstance(curves, Mapping)
    return {key: checked_points(f"link model: {name} of {key}", curve) for key, curve in curves.items()}


def _check_keys(what: str, values: object, expected: list[str] | tuple[str, ...]) -> None:
    if not isinstance(values, Mapping):
        raise DeviceError(f"link model: {what} is {values!r}, expected a mapping", hint=_FROM)
    for problem, keys in (("lacks", set(expected) - set(values)), ("has unknown", set(values) - set(expected))):
        if keys:
            raise DeviceError(f"link model: {what} {problem} {listed(sorted(keys))}", hint=_FROM)


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise DeviceError(f"no {what} {value!r}", hint=f"one of: {', '.join(choices)}")


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise DeviceError(f"link model: {name} is {value!r}, expected a number above 0")
