"""The link model: its arithmetic, its file, and what it refuses."""

import json
from dataclasses import replace

import pytest

from streamscope.devices.link_model import COLLECTIVES, NEIGHBOURS, PRIORITIES, LinkModel
from streamscope.errors import DeviceError
from streamscope.trace.collectives import bus_factor

H100 = LinkModel.load("h100")
# 10 µs and 0.01 ns a byte over the link; a step of a ring takes 1 µs.
LINE = replace(
    H100,
    collective_points={2: {kind: ((0, 10_000), (1e6, 10_000 + 1e4 * bus_factor(kind, 2))) for kind in COLLECTIVES}},
    channel_points={2: dict.fromkeys(COLLECTIVES, ((0, 1), (1000000.0, 21)))},
    hop_ns=1000,
)


@pytest.mark.parametrize(
    ("kind", "expected_ns"),
    [
        ("all_reduce", 10_000 + 4 * 1000 + 1.5 * 10_000),
        ("all_gather", 10_000 + 2 * 1000 + 0.75 * 10_000),
        ("reduce_scatter", 10_000 + 2 * 1000 + 0.75 * 10_000),
        ("broadcast", 10_000 + 2 * 1000 + 10_000),
        ("all_to_all", 10_000 + 0.75 * 10_000),
        ("send", 10_000 + 10_000),
    ],
)
def test_four_gpus_follow_from_two_by_the_formula_of_a_ring(kind, expected_ns):
    assert LINE.collective_ns(kind, 10**6, 4) == pytest.approx(expected_ns)
    assert LINE.bus_gb_s(kind, 10**6, 4) == pytest.approx(bus_factor(kind, 4) * 1e6 / expected_ns)


def test_a_table_of_more_gpus_comes_before_the_formula():
    tables = LINE.collective_points | {4: dict.fromkeys(COLLECTIVES, ((0, 7), (1000000.0, 8)))}
    model = replace(LINE, collective_points=tables)
    assert model.is_measured(4)
    assert model.collective_ns("all_gather", 10**6, 4) == 8
    assert model.collective_ns("all_gather", 0, 6) == 7 + 2 * 1000


def test_channels_are_of_the_size_that_sends_as_much_over_a_link():
    assert LINE.channels("all_reduce", 500_000, 2) == 11
    assert LINE.channels("all_reduce", 500_000, 4) == 16
    assert LINE.channels("send", 0, 8) == 1


def test_shares_are_level_beyond_their_table():
    curve = dict.fromkeys(NEIGHBOURS, ((10, 0.9), (20, 0.7)))
    model = replace(LINE, kernel_speed=dict.fromkeys(PRIORITIES, curve))
    assert [model.kernel_speed_beside("matmul", size) for size in (0, 15, 10**9)] == pytest.approx([0.9, 0.8, 0.7])


def test_faster_links_keep_their_latency():
    fast = LINE.with_link_speed(2)
    assert fast.collective_ns("send", 10**6, 2) == pytest.approx(10_000 + 5_000)
    assert fast.collective_ns("send", 0, 2) == 10_000


def test_a_model_goes_through_its_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(H100.to_dict()))
    assert LinkModel.load(path) == H100


def test_times_grow_with_bytes_and_gpus():
    sizes = [1 << exponent for exponent in range(8, 31)]
    for kind in COLLECTIVES:
        times = [H100.collective_ns(kind, nbytes, 2) for nbytes in sizes]
        assert times == sorted(times)
        # Those of 2 and of 4 GPUs were measured on two hosts.
        assert all(H100.collective_ns(kind, nbytes, 8) >= 0.9 * H100.collective_ns(kind, nbytes, 2) for nbytes in sizes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: H100.collective_ns("reduce", 1, 2), "no collective 'reduce'"),
        (lambda: H100.collective_ns("send", 1, 1), "over 1 GPUs"),
        (lambda: H100.peer_copy_ns(1, "infiniband"), "no link 'infiniband'"),
        (lambda: H100.kernel_speed_beside("sort", 1), "no neighbour 'sort'"),
        (lambda: H100.collective_speed_beside("matmul", 1, "high"), "no priority 'high'"),
        (lambda: LinkModel.load("v100"), "no link model"),
        (lambda: LinkModel.from_dict({}), "lacks"),
        (lambda: replace(H100, hop_ns=-1), "hop_ns is -1"),
        (lambda: replace(H100, collective_points={1: H100.collective_points[2]}), "of 1 GPUs"),
        (lambda: replace(H100, peer_points={"nvlink": H100.peer_points["nvlink"]}), "lacks host and pcie"),
    ],
)
def test_an_impossible_value_is_named(call, message):
    with pytest.raises(DeviceError, match=message):
        call()
