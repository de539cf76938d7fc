"""The public names and the modules they are in; the operators are in `ss.ops`, and analysis in `ss.analysis`.

Type checkers and editors read this file, and so does `__init__.py` when a name is first used: a name stands here and nowhere else.
"""

from IPython.core.interactiveshell import InteractiveShell

from streamscope import analysis as analysis
from streamscope import ops as ops
from streamscope.advising.advice import advise as advise
from streamscope.analysis.diff import diff as diff
from streamscope.auditing.audit import audit as audit
from streamscope.capturing.function import capture as capture
from streamscope.capturing.saved import load_captured as load_captured
from streamscope.comparing.compare import compare as compare
from streamscope.comparing.comparison import Comparison as Comparison
from streamscope.comparing.comparison import load_comparison as load_comparison
from streamscope.comparing.explore import explore as explore
from streamscope.comparing.sweep import sweep as sweep
from streamscope.compiling.compare_compilation import compare_compilation as compare_compilation
from streamscope.compiling.tuning import tune as tune
from streamscope.compiling.warming import warm as warm
from streamscope.devices import open_device as open_device
from streamscope.devices.cuda.bench import auxiliary_stream as auxiliary_stream
from streamscope.differentiating.gradients import grad as grad
from streamscope.differentiating.gradients import value_and_grad as value_and_grad
from streamscope.differentiating.gradients import vjp as vjp
from streamscope.engines.nvtx_ranges import nvtx as nvtx
from streamscope.engines.prepare import prepare as prepare
from streamscope.engines.pushed.engine import Engine as Engine
from streamscope.errors import StreamscopeError as StreamscopeError
from streamscope.formats.read import read as read
from streamscope.kernels.compile.compilation_log import compilations as compilations
from streamscope.measuring.best import best as best
from streamscope.ops.custom import operator as operator
from streamscope.ops.host import host_function as host_function
from streamscope.ops.one_line import elementwise as elementwise
from streamscope.parallelising.parallelise import parallelise as parallelise
from streamscope.predicting.prediction import what_if as what_if
from streamscope.predicting.verify import verify as verify
from streamscope.program.operation import Program as Program
from streamscope.program.symbol import Symbol as Symbol
from streamscope.program.tracer import empty as empty
from streamscope.program.tracer import gpu as gpu
from streamscope.program.tracer import label as label
from streamscope.program.variable import ArraySpec as ArraySpec
from streamscope.ranks.reading import read_ranks as read_ranks
from streamscope.recording.counting import counter as counter
from streamscope.recording.counting import marker as marker
from streamscope.recording.record import record as record
from streamscope.trace.trace import Trace as Trace
from streamscope.tracing import program as program
from streamscope.workloads import workload as workload

__version__: str

def load_ipython_extension(shell: InteractiveShell) -> None: ...
