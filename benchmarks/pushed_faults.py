"""Random operations pushed over several GPUs, against NumPy; and planted faults, after each of which the engine must go on.

A fault is an operand that fails, Ctrl-C at any call of a push or of a wait, or a wait that times out while a collective cannot begin on one
GPU. Collectives are then skipped or aborted on all GPUs. Where a trial does not end within a minute, the process ends with the stacks.

    python benchmarks/pushed_faults.py RESULT [--device cuda] [--gpus 2] [--pushes 20000] [--faults operand=1000,...]
                                              [--processes 8] [--seconds 120]

An aborted communicator is replaced, which takes NCCL up to a second of the host's time. So several processes share the faults and the GPUs.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import WaitTimeoutError

sys.path.insert(0, str(Path(__file__).parents[1]))
_several_gpus: Any = importlib.import_module("tests.engines.pushed.several_gpus")
_interrupting: Any = importlib.import_module("tests.interrupting")
Hosts, KINDS, LENGTH = _several_gpus.Hosts, _several_gpus.KINDS, _several_gpus.LENGTH
Calls, profiled = _interrupting.Calls, _interrupting.profiled

ENGINES = ("async", "dual", "sync")
FAULTS = {"operand": 1000, "ctrl-c in a push": 1000, "ctrl-c in a wait": 500, "time-out": 500}
_PATIENCE_S = 60
_FEW_CHANNELS = {"NCCL_MAX_NCHANNELS": "2", "NCCL_NVLS_ENABLE": "0"}
"""With which NCCL makes communicators sooner; these are not about speed."""
_LATE_NS = 5_000_000
_LARGE = {"simulated": 4, "cuda": 4096}
"""Rows and columns of the products that keep a GPU busy; those of the simulated device start late."""


_TOLD_S = 10
_LAST_WORDS = 8_000
"""How many characters of a lost process's errors are shown, its last ones."""
Faults = dict[str, Counter[str]]


def fails(values: Any) -> Any:
    """Raise."""
    raise ValueError("planted")


@ss.program
def busy(x: Any) -> Any:
    """Keep a GPU busy for some milliseconds."""
    for _ in range(4):
        x = x @ x
    return x


def opened(kind: str, gpus: int) -> Device:
    """Open a host; products start late on a simulated one."""
    if kind == "cuda":
        return ss.open_device("cuda", gpus=gpus)
    return SimulatedDevice(gpus=gpus, delays=lambda launch, stream: (_LATE_NS if launch.name == "matmul" else 0, 1))


class Trial:
    """An engine with variables on all GPUs, where faults are planted one after the other."""

    def __init__(self, device: Device, name: str, gpus: int, chance: random.Random) -> None:
        self.engine = ss.Engine(name, device=device)
        self.name, self.gpus, self.chance = name, gpus, chance
        self.hosts = Hosts(self.engine, gpus)
        self.pairs = [[self._on_each(np.ones(LENGTH, np.int64)) for _ in range(2)] for _ in range(2)]
        side = _LARGE[device.info.kind]
        self.large = [self._on_each(np.zeros((side, side), np.float32)) for _ in range(3)]
        self.host = self.engine.variable(np.ones(LENGTH, np.int64), place="host")
        self.plant: Mapping[str, Callable[[], bool]] = {
            "operand": self.operand,
            "ctrl-c in a push": self.ctrl_c_in_a_push,
            "ctrl-c in a wait": self.ctrl_c_in_a_wait,
            "time-out": self.time_out,
        }
        self._calls: dict[str, int] = {}

    def _on_each(self, values: Any) -> tuple[Any, ...]:
        return tuple(self.engine.variable(values, gpu=gpu) for gpu in range(self.gpus))

    def reduce(self, which: int = 0) -> None:
        """Push a collective over all GPUs."""
        operands, results = self.pairs[which]
        self.engine.push(ss.ops.all_reduce, reads=operands, writes=results)

    def operand(self) -> bool:
        """Let an operand fail; all results must carry that."""
        operands, results = self.pairs[0]
        before = [each.version for each in results]
        self.engine.push(fails, reads=(self.host,), writes=(self.host,))
        self.engine.push(ss.ops.to_device, reads=(self.host,), writes=(self.chance.choice(operands),))
        self.reduce()
        with raised(ValueError) as error:
            self.engine.wait_to_read(self.chance.choice(results))
        assert [each.version for each in results] == before, "a part of the collective ran"
        return bool(error)

    def ctrl_c_in_a_push(self) -> bool:
        """Interrupt pushes at any call."""
        return self._interrupted("push", self._pushes)

    def ctrl_c_in_a_wait(self) -> bool:
        """Interrupt a wait for a collective at any call."""
        self._pushes()
        return self._interrupted("wait", self.engine.wait_all)

    def _pushes(self) -> None:
        self.reduce()
        for kind in ("copy", "add", "all_reduce", "host", "broadcast"):
            self.hosts.push(kind, self.chance)
        self.reduce(1)

    def _interrupted(self, what: str, call: Callable[[], object]) -> bool:
        if what not in self._calls:
            with profiled(undisturbed := Calls()):
                call()
            self._calls[what] = undisturbed.countdown.count
            if what == "wait":
                self._pushes()
        at = self.chance.randint(1, self._calls[what])
        try:
            with profiled(Calls(at)):
                call()
        except KeyboardInterrupt:
            return True
        except ss.StreamscopeError:
            return False
        return False

    def time_out(self) -> bool:
        """Let a wait time out, while a collective waits for one busy GPU."""
        if self.name == "sync":
            return self.operand()  # Its pushes wait.
        number = self.chance.randrange(self.gpus)
        first, second, third = self.large
        self.engine.push(busy, reads=(first[number],), writes=(second[number],))
        self.engine.push(ss.ops.all_reduce, reads=second, writes=third)
        self.reduce()
        with raised(WaitTimeoutError) as error:
            self.engine.wait_to_read(self.chance.choice(third), timeout=1e-3)
        return bool(error)

    def recover(self) -> None:
        """Raise the errors that are left; then all must work, by value."""
        for _ in range(20):
            with raised(ss.StreamscopeError) as error:
                self.engine.wait_all()
            if not error:
                break
        else:
            raise AssertionError(f"there is no end of faults: {error}")
        for which in range(2):
            operands, results = self.pairs[which]
            values = [np.full(LENGTH, self.chance.randrange(100)) for _ in operands]
            for variable, value in zip(operands, values, strict=True):
                self.engine.write(variable, value)
            self.engine.write(self.host, values[0])
            self.reduce(which)
            for result in results:
                np.testing.assert_array_equal(self.engine.read(result), sum(values))
        for key, variable in self.hosts.variables.items():
            self.engine.write(variable, self.hosts.values[key])
        self.engine.wait_all()


@contextmanager
def raised(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """Collect the error that the block raises: of a kind, or one of ours that it is the cause of."""
    errors: list[BaseException] = []
    try:
        yield errors
    except ss.StreamscopeError as error:
        if not isinstance(error, kind) and not isinstance(error.__cause__, kind):
            raise
        errors.append(error)


def pushed(device: Device, gpus: int, pushes: int, seed: int = 0) -> dict[str, int]:
    """Push random operations on every engine, and compare all variables with NumPy; return how many."""
    done = {}
    for name in ENGINES:
        chance = random.Random(f"{seed} {name}")
        with ss.Engine(name, device=device) as engine:
            hosts = Hosts(engine, gpus)
            for number in range(pushes):
                faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
                hosts.push(chance.choice(KINDS), chance, chance.choice([0, 0, 0, 1]))
                if number % 500 == 499:
                    hosts.check()
            hosts.check()
        done[name] = pushes
    return done


def planted(device: Device, gpus: int, faults: Mapping[str, int], seed: int, until_s: float) -> Faults:
    """Plant faults on every engine in turn, while there is time; return how many of each kind, and how many of them were raised."""
    chance = random.Random(seed)
    kinds = [kind for kind, number in faults.items() for _ in range(number)]
    chance.shuffle(kinds)
    trials = [Trial(device, name, gpus, chance) for name in ENGINES]
    for trial in trials:  # Modules that are imported when Ctrl-C comes are another matter.
        trial.recover()
    count, met, told_s = Counter[str](), Counter[str](), time.monotonic()
    for number, kind in enumerate(kinds):
        if time.monotonic() > until_s:
            break
        faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
        trial = trials[number % len(trials)]
        met[kind] += trial.plant[kind]()
        trial.recover()
        count[kind] += 1
        if time.monotonic() > told_s + _TOLD_S:
            told_s = time.monotonic()
            print(f"seed {seed}: {number + 1} of {len(kinds)} faults, {getattr(device, 'collective_aborts', 0)} aborts", flush=True)
    for trial in trials:
        trial.engine.close()
    faulthandler.cancel_dump_traceback_later()
    return {kind: Counter(planted=count[kind], raised=met[kind]) for kind in faults}


def one_process(kind: str, gpus: int, pushes: int, faults: Mapping[str, int], seed: int, seconds: float) -> dict[str, Any]:
    """Return what one process found."""
    until_s = time.monotonic() + seconds
    os.environ |= _FEW_CHANNELS
    faulthandler.enable()
    sys.unraisablehook = lambda unraisable: None  # Ctrl-C in a weak reference's callback is told of, and nothing else.
    device = opened(kind, gpus)
    done = pushed(device, gpus, pushes, seed) if pushes else {}
    found = planted(device, gpus, faults, seed, until_s)
    return {"pushes": Counter(done), "faults": found, "aborts": getattr(device, "collective_aborts", 0)}


def into(folder: str, seed: int, *task: Any) -> None:
    """Leave this process's results and its words on faults in a folder."""
    stderr = os.open(f"{folder}/{seed}.stderr", os.O_WRONLY | os.O_CREAT)
    os.dup2(stderr, 2)
    Path(folder, f"{seed}.json").write_text(json.dumps(one_process(*task)))


def how_ended(code: int) -> str:
    """Say how a process ended: by its exit code or by a signal."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def by_processes(options: argparse.Namespace, asked: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the results of each process, which plants its share of the faults; tell the ends of those without results.

    Raises
    ------
    SystemExit
        Some ended before their time.
    """
    shares = [{kind: len(range(seed, number, options.processes)) for kind, number in asked.items()} for seed in range(options.processes)]
    tasks = [(options.device, options.gpus, options.pushes, share, seed, options.seconds) for seed, share in enumerate(shares)]
    if len(tasks) == 1:
        yield one_process(*tasks[0])
        return
    spawn, lost = multiprocessing.get_context("spawn"), 0
    with tempfile.TemporaryDirectory() as folder:
        processes = [spawn.Process(target=into, args=(folder, seed, *task)) for seed, task in enumerate(tasks)]
        for process in processes:
            process.start()
        for seed, process in enumerate(processes):
            process.join()
            found = Path(folder, f"{seed}.json")
            if process.exitcode == 0 and found.exists():
                yield json.loads(found.read_text())
                continue
            lost += 1
            said = Path(folder, f"{seed}.stderr")
            print(f"process {seed} ended {how_ended(process.exitcode or 0)}, after it wrote:", flush=True)
            print(said.read_text(errors="replace")[-_LAST_WORDS:] if said.exists() else "nothing", flush=True)
    if lost:
        raise SystemExit(f"{lost} of {len(processes)} processes ended before their time")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--device", default="simulated")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--pushes", type=int, default=3000, help="of each process, on each engine")
    parser.add_argument("--faults", default=",".join(f"{kind}={number}" for kind, number in FAULTS.items()))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no more faults are planted")
    options = parser.parse_args()
    asked = {kind: int(number) for kind, number in (each.split("=") for each in options.faults.split(",") if each)}
    begin_s, pushes, faults, aborts = time.monotonic(), Counter[str](), {kind: Counter[str]() for kind in asked}, 0
    for found in by_processes(options, asked):
        pushes.update(found["pushes"])
        aborts += found["aborts"]
        for kind, counts in found["faults"].items():
            faults[kind].update(counts)
    content = {
        "what": "operations pushed over several GPUs, equal to NumPy; faults planted, after each of which the engine goes on; none hangs",
        "gpus": options.gpus,
        "processes": options.processes,
        "pushes": dict(pushes),
        "faults": {kind: dict(counts) for kind, counts in faults.items()},
        "hangs": 0,
        "seconds": round(time.monotonic() - begin_s, 1),
        "aborts": aborts,
    }
    print(content)
    keep("pushed_faults.json", content | provenance(opened(options.device, options.gpus)))


if __name__ == "__main__":
    main()
