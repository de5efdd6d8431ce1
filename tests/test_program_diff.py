import copy
import json

import pytest
from test_record import make

from accel_bench import schema
from accel_bench.program_diff import differences
from accel_bench.record import to_line

TALLY = {"static": 1, "executed": 2}


def compiled(**facts):
    target = {"kind": "compiled", "platform": "tpu", "chip": "v5e", "topology": "1x1"}
    return make(target=target, samples_s=[], facts=facts)


ONE = {
    "program": {"flops_by_type": {"bf16": 3e9, "f32": 1e9}, "flops_vs_work": 1.0},
    "code": {
        "kernels": {"EmitAllBatchInSublanes": TALLY},
        "fusions": {"Output": {"static": 1, "executed": 3}, "Loop": {"static": 1, "executed": 4}},
        "custom_calls": {},
        "copies": {"static": 0, "executed": 0, "bytes": 0},
        "prefetches": {"static": 1, "executed": 2, "bytes": 4e6},
        "layouts": {"row_major": 3, "other": 1, "unknown": 0},
    },
    "memory": {"temporaries": 0},
    "collectives": [
        {"kind": "all-gather", "axes": ["fsdp"], "dtype": "bf16", "calls": 2, "bytes": 2e9},
        {"kind": "all-gather", "axes": ["fsdp"], "dtype": "bf16", "calls": 1, "bytes": 1e9},
    ],
}
OTHER = {
    "program": {"flops_by_type": {"f32": 4e9}, "flops_vs_work": 1.33},
    "code": {
        "kernels": {"triton": TALLY},
        "fusions": {"Custom": {"static": 1, "executed": 5}},
        "custom_calls": {"__cublas$lt$matmul": TALLY},
        "copies": {"static": 1, "executed": 1, "bytes": 2e6},
        "prefetches": {"static": 0, "executed": 0, "bytes": 0},
        "layouts": {"row_major": 4, "other": 0, "unknown": 0},
    },
    "memory": {"temporaries": 5e6},
    "collectives": [],
}


def test_each_difference_is_said_with_both_figures():
    assert differences(compiled(**ONE), compiled(**OTHER), ("A", "B")) == [
        "products by operand: A 75 % bf16 + 25 % f32, B 100 % f32",
        "products run as: A 2 x EmitAllBatchInSublanes, B 2 x triton",
        "products over what the mathematics needs: A 1x, B 1.33x",
        "fusions executed a call: A 7, B 5",
        "copies and changes of layout: A none, B 1 (2.00 MB of main memory)",
        "moves between memories: A 2 (4.00 MB of main memory), B none",
        "of 4 arguments not row-major: A 1, B 0",
        "custom calls: A none, B 2 x __cublas$lt$matmul",
        "temporaries on each device: A none, B 5.00 MB",
        "all-gather over fsdp in bf16: A 3 calls, 3.00 GB, B none",
    ]


def test_equal_programs_differ_in_nothing():
    assert differences(compiled(**ONE), compiled(**ONE), ("A", "B")) == []


def test_what_is_not_known_is_not_compared():
    assert differences(compiled(), compiled(**OTHER), ("A", "B"))
    assert differences(compiled(), compiled(), ("A", "B")) == []
    nulls = {"program": None, "code": None, "memory": None, "collectives": None}
    assert differences(compiled(**nulls), compiled(**nulls), ("A", "B")) == []


def _paths(value, at=()):
    for name, item in value.items() if isinstance(value, dict) else ():
        yield (*at, name)
        yield from _paths(item, (*at, name))


@pytest.mark.parametrize("path", list(_paths(ONE)), ids=str)
@pytest.mark.parametrize("missing", [True, False])
def test_a_figure_that_is_null_or_not_there_is_survived(path, missing):
    """Records of others may lack what this version writes."""
    facts = copy.deepcopy(ONE)
    group = facts
    for name in path[:-1]:
        group = group[name]
    if missing:
        del group[path[-1]]
    else:
        group[path[-1]] = None
    try:
        schema.check(json.loads(to_line(compiled(**facts))))
    except ValueError:
        return  # no such record is read
    differences(compiled(**facts), compiled(**OTHER), ("A", "B"))
    differences(compiled(**OTHER), compiled(**facts), ("A", "B"))
