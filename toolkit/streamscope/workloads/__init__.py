"""Ready programs, from an element-wise chain to parts of models."""

from __future__ import annotations

from streamscope.arguments import shown
from streamscope.errors import WorkloadError
from streamscope.workloads.models import ATTENTION, RESNET_BLOCK
from streamscope.workloads.parallel import DATA_PARALLEL, EXPERT_PARALLEL, PIPELINE_PARALLEL, TENSOR_PARALLEL
from streamscope.workloads.programs import BRANCHES, CNN, CONV_BACKWARD, ELEMENTWISE_CHAIN, PIPELINE
from streamscope.workloads.recurrent import LSTM
from streamscope.workloads.resnet import RESNET50_V2
from streamscope.workloads.transformer import TRANSFORMER
from streamscope.workloads.workload import Setting, Workload

ON_ONE_GPU = (ELEMENTWISE_CHAIN, CONV_BACKWARD, BRANCHES, PIPELINE, CNN, ATTENTION, LSTM, RESNET_BLOCK)
NETWORKS = (RESNET50_V2, TRANSFORMER)
"""Whole networks: as they are by default, too long for a test of every workload. They have no recordings beside the notebooks."""
_ON_SEVERAL = (DATA_PARALLEL, TENSOR_PARALLEL, PIPELINE_PARALLEL, EXPERT_PARALLEL)
WORKLOADS = {workload.name: workload for workload in (*ON_ONE_GPU, *NETWORKS, *_ON_SEVERAL)}


def workload(name: str) -> Workload:
    """Return a workload by name.

    Raises
    ------
    WorkloadError
        No workload has that name.

    Examples
    --------
    >>> program, inputs = ss.workload("branches").build(branches=2, length=1, size=4)
    >>> [array.shape for array in inputs]
    [(4,), (4,), (4,)]
    """
    try:
        return WORKLOADS[name]
    except (KeyError, TypeError):  # TypeError: a list or the like, which can be no key.
        raise WorkloadError(f"unknown workload {shown(name)}", hint=f"choose from {', '.join(WORKLOADS)}") from None


__all__ = ["WORKLOADS", "Setting", "Workload", "workload"]
