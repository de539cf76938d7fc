"""The user's lines in a Kineto file: frames of Python and modules around each launch call, by thread and time.

PyTorch's profiler writes them with ``with_stack=True``. A frame names a function, its file, and the line where it is *defined*. Frames of
libraries say nothing of the user's code, and are not kept. The others are kept as a site and its callers. A launch of the backward pass
belongs to the forward operator that has the sequence number of the backward one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import printable
from streamscope.trace.joins import distinct, thread_numbers
from streamscope.trace.launch_sites import MOST_CALLERS, MOST_LINE, Site
from streamscope.trace.nesting import enclosing, innermost_on, with_outer

MOST_FRAMES = 10_000_000
"""Frames of the user's and of modules that are kept; further ones are left out, and counted."""
_MOST_NAMES = 1_000_000
"""Names that are remembered."""
_MOST_FORWARD_THREADS = 256
"""Threads with a forward pass that are looked at: no program has that many passes."""
_LONGEST = 1_000
"""Most characters of a name; longer ones are cut."""
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,10})\): (?P<function>.+)", re.DOTALL)
_FUNCTION = re.compile(r"\bdef (\w+)")
_MODULE = "nn.Module: "
_INSTALLED = re.compile(r"(?:^|/)(?:site-packages|dist-packages|lib/python3(?:\.\d+)?t?)/")
_LIBRARIES = {
    "IPython", "PIL", "_pytest", "accelerate", "apex", "bitsandbytes", "cupy", "cupyx", "cv2", "debugpy", "deepspeed", "detectron2",
    "dgl", "diffusers", "einops", "fairscale", "fairseq", "fastai", "flash_attn", "flax", "functorch", "gpytorch", "huggingface_hub",
    "ipykernel", "jax", "jaxlib", "kornia", "lightning", "lightning_fabric", "lightning_utilities", "matplotlib", "megatron", "mmcv",
    "mmdet", "mmengine", "monai", "nemo", "numba", "numpy", "open_clip", "pandas", "peft", "pluggy", "pytest", "pytorch_lightning",
    "safetensors", "scipy", "sentence_transformers", "skimage", "sklearn", "streamscope", "tensorflow", "timm", "tokenizers", "torch",
    "torch_geometric", "torchao", "torchaudio", "torchgen", "torchmetrics", "torchrec", "torchtext", "torchtune", "torchvision",
    "tornado", "tqdm", "traitlets", "transformer_engine", "transformers", "triton", "trl", "ultralytics", "vllm", "xformers", "zmq",
}  # fmt: skip
"""Their files begin so: PyTorch leaves out the folder that it imports from."""


def user_frame(name: str) -> Site | None:
    """Return function, file and line of a frame in the user's code; None for one of Python, a library, or generated code.

    PyTorch leaves out the folder that a file was imported from, so an installed library looks like a folder of the user's. Known by
    their names are the usual ones around PyTorch, such as ``torchvision``, ``transformers`` and ``lightning``. A file counts as Python's
    own if its standard library has that file, with a function of that name: ``trace.py(3): train`` is the user's. Where it cannot be
    told, a frame is the user's.
    """
    found = _FRAME.fullmatch(name)
    if found is None or name.startswith("<built-in"):
        return None
    path = found["file"].replace("\\", "/")
    if path.startswith("<") and not path.startswith("<ipython-input"):
        return None
    library = _INSTALLED.search(path) or ("/" in path and path.partition("/")[0] in _LIBRARIES)
    if library or found["function"] in _functions_of_python(path) or int(found["line"]) > MOST_LINE:
        return None
    function, file = (printable(found[each])[:_LONGEST] for each in ("function", "file"))
    return Site(function, file, int(found["line"]), defined=True)


@lru_cache(maxsize=1024)
def _functions_of_python(path: str) -> frozenset[str]:
    """Return the names of all functions in a file of the standard library; of another file none."""
    top, *folders = path.removesuffix(".py").split("/")
    file = Path(os.__file__).parent / path
    if top not in sys.stdlib_module_names or ".." in folders or not os.path.isfile(file):  # noqa: PTH113 — it takes names that are too long
        return frozenset()
    return frozenset(_FUNCTION.findall(file.read_text(encoding="utf-8", errors="replace")))


class _Codes(dict[str, int]):
    """Number of each name of a frame that is kept, by the name: even for the user's, odd for modules; -1 for all others."""

    def __init__(self) -> None:
        super().__init__()
        self.users: list[Site] = []
        self.modules: list[str] = []

    def __missing__(self, name: str) -> int:
        code = self._code(name)
        if code >= 0 or len(self) < _MOST_NAMES:
            self[name] = code
        return code

    def _code(self, name: str) -> int:
        if name.startswith(_MODULE):
            self.modules.append(printable(name.removeprefix(_MODULE))[:_LONGEST])
            return 2 * len(self.modules) - 1
        frame = user_frame(name)
        if frame is None:
            return -1
        self.users.append(frame)
        return 2 * len(self.users) - 2


@dataclass
class ThreadTimes:
    """Events of threads, as equally long columns: processes, threads and times as in `Activities`."""

    process: IntArray
    place: IntArray
    start_ns: IntArray
    end_ns: IntArray

    def __len__(self) -> int:
        return len(self.start_ns)

    def rows(self, chosen: npt.NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array picks."""
        return type(self)(*(getattr(self, each.name)[chosen] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return several as one."""
        none = np.zeros(0, np.int64)
        return cls(*(np.concatenate([none, *(getattr(part, each.name) for part in parts)]) for each in fields(cls)))


@dataclass
class Frames(ThreadTimes):
    """Frames; ``code`` is that of `Stacks.code`."""

    code: IntArray


@dataclass
class Operators(ThreadTimes):
    """Operators with a sequence number, and the number of the forward thread: 0 for operators of a forward pass."""

    sequence: IntArray
    forward: IntArray


class Stacks:
    """Collects frames and operators, piece by piece, and finds the site of each call."""

    def __init__(self) -> None:
        self._codes = _Codes()
        self._frames: list[Frames] = []
        self._operators: list[Operators] = []
        self.count = 0
        """Frames that are kept."""
        self.left_out = 0
        """Frames beyond `MOST_FRAMES`."""

    def code(self, names: Sequence[str]) -> IntArray:
        """Return the codes of frames by their names; -1 for frames that are not kept."""
        return np.fromiter(map(self._codes.__getitem__, names), np.int64, len(names))

    def add(self, some: Frames | Operators) -> None:
        """Keep frames, or operators."""
        if isinstance(some, Operators):
            self._operators.append(some)
        elif self.count + len(some) > MOST_FRAMES:
            self.left_out += len(some)
        else:
            self._frames.append(some)
            self.count += len(some)

    def sites(self, calls: ThreadTimes) -> tuple[IntArray, list[Site]]:
        """Return the index of the site of each call, -1 where the file does not tell it, and the sites."""
        frames = Frames.joined(self._frames)
        if not len(frames) or not len(calls):
            return np.full(len(calls), -1, np.int64), []
        operators = Operators.joined(self._operators)
        threads = [(one.process, one.place) for one in (frames, operators, calls)]
        thread_of_frame, thread_of_operator, thread_of_call = thread_numbers(*threads)
        backward = operators.forward > 0
        some = operators.rows(backward)
        around = innermost_on(thread_of_operator[backward], some.start_ns, some.end_ns, thread_of_call, calls.start_ns)
        # A call of the backward pass is where, and when, its forward operator began.
        thread, start_ns = thread_of_call.copy(), calls.start_ns.copy()
        rows = np.flatnonzero(around >= 0)
        forward = _forward_of(operators, thread_of_operator, np.flatnonzero(backward)[around[rows]])
        thread[rows] = np.where(forward >= 0, thread_of_operator[forward], -1)
        start_ns[rows] = operators.start_ns[forward] if len(operators) else 0
        inner = innermost_on(thread_of_frame, frames.start_ns, frames.end_ns, thread, start_ns)
        stack, stacks = self._stacks(frames, thread_of_frame, inner, start_ns)
        pair = np.zeros(len(calls), np.int64)
        for module in (False, True):
            kind = (frames.code & 1) == module
            inner = innermost_on(thread_of_frame[kind], frames.start_ns[kind], frames.end_ns[kind], thread, start_ns)
            code = np.where(inner >= 0, frames.code[kind][inner] >> 1, -1) if kind.any() else inner
            pair = pair * (len(self._codes.modules) + 1) + code + 1
        used, which = distinct(pair * (len(stacks) + 1) + stack + 1)
        sites = [self._in_stack(one // (len(stacks) + 1), one % (len(stacks) + 1), stacks) for one in used.tolist()]
        known = np.cumsum([site is not None for site in sites]) - 1
        number = np.where([site is not None for site in sites], known, -1)
        return number[which], [site for site in sites if site is not None]

    def _stacks(self, frames: Frames, thread: IntArray, inner: IntArray, at_ns: IntArray) -> tuple[IntArray, list[Site]]:
        """Return the stack that ends with the innermost frame of each call, -1 for none, and the stacks: sites with their callers."""
        calls = np.sort(at_ns)
        # Only frames around a call of any thread are in stacks of calls.
        some = np.flatnonzero(np.searchsorted(calls, frames.start_ns) < np.searchsorted(calls, frames.end_ns))
        outer = np.full(len(frames), -1, np.int64)
        order = some[np.argsort(thread[some], kind="stable")]
        for rows in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1):
            around = enclosing(frames.start_ns[rows], frames.end_ns[rows])
            outer[rows] = np.where(around >= 0, rows[around], -1)
        needed = with_outer(inner, outer)
        needed = needed[np.lexsort((-frames.end_ns[needed], frames.start_ns[needed]))]
        stacks, numbers = list[Site](), dict[tuple[int, int], int]()
        depths = {-1: 0}
        callers = list[int]()
        stack = np.full(len(frames) + 1, -1, np.int64)
        for row, around, code in zip(needed.tolist(), outer[needed].tolist(), frames.code[needed].tolist(), strict=True):
            caller = int(stack[around])
            if depths[caller] > MOST_CALLERS:  # What is deeper lies in the outer frames all the same.
                caller = callers[caller]
            number = numbers.setdefault((caller, code), len(stacks))
            if number == len(stacks):
                stacks.append(self._called(code, stacks[caller] if caller >= 0 else None))
                depths[number] = depths[caller] + 1
                callers.append(caller)
            stack[row] = number
        return stack[inner], stacks

    def _called(self, code: int, caller: Site | None) -> Site:
        """Return the site of a frame in another site."""
        within = caller or Site()
        if code & 1:
            return within._replace(module=self._codes.modules[code >> 1], caller=caller)
        return self._codes.users[code >> 1]._replace(module=within.module, caller=caller)

    def _in_stack(self, pair: int, stack: int, stacks: Sequence[Site]) -> Site | None:
        """Return the site of a pair of frame and module in a stack, counted from 1. Frames that do not nest have no callers."""
        site = self._site(*divmod(pair, len(self._codes.modules) + 1))
        return stacks[stack - 1] if stack and site is not None and stacks[stack - 1][:5] == site[:5] else site

    def _site(self, user: int, module: int) -> Site | None:
        """Return the site of a user's frame and a module, each counted from 1; None where there is neither."""
        frame = self._codes.users[user - 1] if user else Site()
        return frame._replace(module=self._codes.modules[module - 1]) if module else frame if user else None


def _forward_of(operators: Operators, thread: IntArray, backward: IntArray) -> IntArray:
    """Return for each of some operators of a backward pass the forward one of its number: the last one that began before; -1 for none.

    The file numbers forward threads otherwise than threads. Where several threads have operators with these numbers, the forward thread is
    the only one that has all of those that any has; else it is not known.
    """
    found = np.full(len(backward), -1, np.int64)
    if not len(backward):
        return found
    forward = np.flatnonzero(operators.forward == 0)
    _, owner = distinct(operators.forward[backward])
    processes, process = distinct(operators.process)
    _, group = distinct(owner * len(processes) + process[backward])
    for one in range(min(int(group.max()) + 1, _MOST_FORWARD_THREADS)):
        asked = np.flatnonzero(group == one)
        rows = backward[asked]
        same = forward[
            (operators.process[forward] == operators.process[rows[0]]) & np.isin(operators.sequence[forward], operators.sequence[rows])
        ]
        _, which = distinct(thread[same])
        numbers, number = distinct(operators.sequence[same])
        pairs, _ = distinct(which * len(numbers) + number)
        whole = np.flatnonzero(np.bincount(pairs // max(1, len(numbers))) == len(numbers))
        if len(whole) == 1:
            found[asked] = _last_before(operators, same[which == whole[0]], rows)
    return found


def _last_before(operators: Operators, forward: IntArray, backward: IntArray) -> IntArray:
    """Return for each backward operator the last forward one with its sequence number that began before it; -1 where there is none."""
    rows = np.concatenate([forward, backward])
    asks = np.arange(len(rows)) >= len(forward)
    order = np.lexsort((asks, operators.start_ns[rows], operators.sequence[rows]))
    position = np.maximum.accumulate(np.where(asks[order], -1, np.arange(len(rows))))
    before = np.where(position >= 0, rows[order[position]], -1)
    same = (before >= 0) & (operators.sequence[before] == operators.sequence[rows[order]])
    found = np.full(len(rows), -1, np.int64)
    found[order] = np.where(same, before, -1)
    return found[len(forward) :]
