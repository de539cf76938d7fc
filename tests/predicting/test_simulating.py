"""Programs made of tasks, by hand."""

from streamscope.devices.cost_model import KernelCost
from streamscope.predicting.simulating import program_of
from streamscope.predicting.tasks import Task
from streamscope.program.launch import Cost, HostCall
from streamscope.trace.origins import Trait


def test_launches_of_one_operation_stand_together_and_what_belongs_to_none_alone():
    piece = (KernelCost(5.0, Cost(0)),)
    tasks = [
        Task((0, 0), "conv", Trait(0), (), pieces=piece), Task((0, 1), "bias", Trait(0), (0,), pieces=piece),
        Task((1, 0), "host", Trait.HOST, (1,), call_ns=3.0),
        Task((-1, 0), "a", Trait.CAPTURED, (0, 2)), Task((-1, 0), "b", Trait.CAPTURED, ()),
    ]  # fmt: skip
    program, places = program_of("step", tasks)
    assert [(each.name, each.reads, each.writes) for each in program.operations] == [
        ("conv", (), (0, 1)), ("host", (1,), (2,)), ("a", (0, 2), (3,)), ("b", (), (4,)),
    ]  # fmt: skip
    assert [type(each.work) is HostCall or len(each.work) for each in program.operations] == [2, True, 1, 1]
    assert places == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (2, 0): 3, (3, 0): 4}
