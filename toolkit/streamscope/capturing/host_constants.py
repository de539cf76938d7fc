"""Values that a function makes anew in host memory in each call, of constants alone, and copies to the device: a window, offsets, a mask.

No capture copies from pageable memory. But where PyTorch's operators made the values within the call, and were given nothing but numbers
that are written down and each other's results, every call makes the same. Such values are copied once, in a plain call, and the capture
copies from there. The capture's own call has to make the same bytes again. Everything else is unknown and stays refused: arguments and
state, random numbers, and what other libraries hand over or may have written to.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamscope.capturing.operators import is_trusted, tensors_in, written_by

_FACTORIES = (
    *("arange", "range", "full", "zeros", "ones", "eye", "linspace", "logspace", "scalar_tensor", "tril_indices", "triu_indices"),
    *("fft_fftfreq", "fft_rfftfreq", "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"),
)
"""Operators that make values of numbers alone."""
_UNSEEN = ("empty", "resize", "set_", "detach", "data")
"""Words in names of operators that leave memory as it was, or give it to others: ``.numpy()`` calls detach."""
_READING = ("copy_", "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
"""Operators that copy arguments in host memory to the device of their first one."""
_MOST_BYTES = 2**26
"""Larger values are not followed, since each operator on them would take a copy."""


class HostConstants:
    """Follows the operators of a plain call, and then of a capture, each through `lent` before it is called and `note` afterwards.

    ``device``: the kind of device that the function copies to.
    """

    def __init__(self, device: str = "cuda") -> None:
        self.copies: dict[tuple[int, int], tuple[Any, Any]] = {}
        """Bytes of constants, and their copies on the device, by the number of the operator that needs them and that of its argument."""
        self.lent_out = 0
        """How many of them the capture needed."""
        self._device, self._plain = device, True
        self._begin()

    def _begin(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # Storages, which must live as long as they are known by their address, and bytes.
        self._sure, self._generators = True, _generators()
        self._of_constants = False

    def plain_call_ended(self) -> None:
        """From now on, the operators are those of the capture."""
        self._plain = False
        self._begin()

    def lent(self, number: int, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of an operator, in a capture with the copies of constants that it would copy from host memory."""
        self._of_constants = self._has_constants_alone(function, [*args, *kwargs.values()])
        name = _name(function)
        device = kwargs.get("device") if name == "_to_copy" else args[0].device if name in _READING else None
        if device is None or device.type != self._device or not is_trusted(function):
            return tuple(args)
        place = 0

        def given(value: Any) -> Any:
            nonlocal place
            if isinstance(value, tuple | list):
                return type(value)(map(given, value))
            place += 1
            is_mask = name not in ("_to_copy", "copy_") and getattr(value, "dtype", None) == sys.modules["torch"].bool
            return value if is_mask or not self._is_constant(value) else self._copy(value, (number, place), device)

        return tuple(map(given, args))

    def _copy(self, value: Any, key: tuple[int, int], device: Any) -> Any:
        """Return the copy of a constant; in a plain call, make it, and return the constant, which is copied as always."""
        if self._generators != _generators():
            return value  # A number may have been drawn, and come in as any other.
        if self._plain:
            self.copies[key] = (_bytes_of(value.untyped_storage()).clone(), value.to(device))
            return value
        before, copy = self.copies.get(key, (None, None))
        if before is None or copy.shape != value.shape or not _same(before, _bytes_of(value.untyped_storage())):
            return value
        self.lent_out += 1
        return copy

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note what an operator made in host memory: constants, or what nobody knows."""
        touched = [*tensors_in(result), *(one for one, written in written_by(function, args, kwargs) if written or _leaves(function))]
        on_host = [one for one in touched if _on_host(one)]
        # Numbers of arguments or of state, which may come in again as any other: by item(), numpy() or, unseen, tolist() of random numbers.
        drawn = _is_random(function) and any(one.ndim for one in on_host)
        number = isinstance(result, bool | int | float | complex)
        if (number or drawn or (_name(function) == "detach" and on_host)) and not self._of_constants:
            self._sure = False
        for storage in (one.untyped_storage() for one in on_host):
            if self._of_constants and storage.nbytes() <= _MOST_BYTES:
                self._made[storage._cdata] = (storage, _bytes_of(storage).clone())  # noqa: SLF001 — no public way
            else:
                self._made.pop(storage._cdata, None)  # noqa: SLF001

    def _has_constants_alone(self, function: Any, given: Sequence[Any]) -> bool:
        """Tell whether all that an operator is given are numbers and constants, and its results are determined by these."""
        tensors = list(tensors_in(given))
        if _is_random(function) or _leaves(function) or not is_trusted(function) or not all(map(_is_plain, given)):
            return False
        return all(map(self._is_constant, tensors)) if tensors else _name(function) in _FACTORIES

    def _is_constant(self, value: Any) -> bool:
        """Tell whether values in host memory are constants, and are as operators have left them."""
        if not self._sure or not _on_host(value):
            return False
        storage, content = self._made.get(value.untyped_storage()._cdata, (None, None))  # noqa: SLF001 — no public way
        return storage is not None and _same(content, _bytes_of(storage))


def _name(function: Any) -> str:
    name: str = function._schema.name.partition("::")[2]  # noqa: SLF001 — no public way
    return name


def _is_random(function: Any) -> bool:
    return sys.modules["torch"].Tag.nondeterministic_seeded in function.tags


def _leaves(function: Any) -> bool:
    return any(word in _name(function) for word in _UNSEEN)


def _on_host(value: Any) -> bool:
    """Tell a tensor with plain memory of the host."""
    torch = sys.modules["torch"]
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided


def _is_plain(value: Any) -> bool:
    """Tell an argument that says all that it holds: numbers, names, dtypes, tensors and lists of them, and no generator or storage."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    torch = sys.modules["torch"]
    names = torch.dtype | torch.device | torch.layout | torch.memory_format
    return isinstance(value, bool | int | float | complex | str | torch.Tensor | names | None)


def _bytes_of(storage: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _same(one: Any, other: Any) -> bool:
    return bool(sys.modules["torch"].equal(one, other))


def _generators() -> tuple[Any, ...]:
    """Return the states of the random numbers that everybody shares, of Python and NumPy."""
    arrays = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 — users' old code draws there
    return random.getstate(), arrays["key"].tobytes(), arrays["pos"]
