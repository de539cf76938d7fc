"""The dynamic engine: operations pushed one by one over variables, ordered by what they read and write."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamscope.capturing.function import CapturedFunction
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.dynamic.applications import Application
from streamscope.dynamic.bulk import Bulk, checked_size
from streamscope.dynamic.catalogue import Catalogue, TracingError
from streamscope.dynamic.choice import checked_workers, chosen_engine
from streamscope.dynamic.faults import Fault
from streamscope.dynamic.host_operations import HostFunction
from streamscope.dynamic.interrupts import deferred
from streamscope.dynamic.issuing import Issuer
from streamscope.dynamic.lifetimes import Lifetimes
from streamscope.dynamic.programs import PreparedPrograms
from streamscope.dynamic.queues import idle
from streamscope.dynamic.scheduler import Scheduler
from streamscope.dynamic.statistics import EngineStatistics
from streamscope.dynamic.templates import is_operator, typed
from streamscope.dynamic.variable import DynamicVariable, VariableState
from streamscope.dynamic.workers import Workers
from streamscope.engines.lanes import checked_streams
from streamscope.engines.prepared import host_array
from streamscope.errors import EngineError, ProgramError
from streamscope.ops.copies import to_device, to_host
from streamscope.program.tracing import ProgramFunction
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, Place

Array = npt.NDArray[Any]
PlaceName = Literal["device", "host"]

_ID = attrgetter("_id")
