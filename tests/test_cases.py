import pytest

from accel_bench.cases import Case, describe, expand, format_bytes
from accel_bench.config import base
from accel_bench.errors import RequestError

DECODE = {"workload": "model", "phase": "decode", "model": "tiny", "batch": 2, "length": 8}


def config_of(**section):
    config = base("test")
    config.cases = {"it": {"workload": "matmul", "shape": "64"} | section}
    return config


def test_tuples_are_swept_and_precisions_come_with_each():
    config = config_of(shape=("64", "128"))
    config.precision = ("fp32", "bf16")
    found = [(case.params["shape"], case.precision) for case in expand(config, "cpu", {})]
    assert found == [("64", "fp32"), ("64", "bf16"), ("128", "fp32"), ("128", "bf16")]


def test_a_workload_that_no_precision_touches_runs_once():
    config = config_of()
    config.cases = {"it": {"workload": "dispatch", "mode": "queued"}}
    config.precision = ("fp32", "bf16")
    assert [case.precision for case in expand(config, "cpu", {})] == ["fp32"]


def test_platforms_have_their_own_sizes():
    config = config_of(shape={"cpu": ("64",), "gpu": ("4096", "8192"), "tpu": ("4096",)})
    assert len(expand(config, "cpu", {})) == 1
    assert len(expand(config, "gpu", {})) == 2


def test_a_case_stands_once_however_often_it_is_named():
    config = config_of()
    config.cases = {name: {"workload": "matmul", "shape": "64"} for name in ("one", "two")}
    assert len(expand(config, "cpu", {})) == 1


def test_baselines_come_last_and_by_library():
    config = config_of(shape=("64", "128"))
    config.baselines = ("numpy", "numpy_1thread")
    order = [case.implementation for case in expand(config, "cpu", {})]
    assert order == ["xla", "xla", "numpy", "numpy", "numpy_1thread", "numpy_1thread"]


def test_model_overrides_reach_the_model():
    config = base("test")
    section = {"workload": "model", "phase": "forward", "model": "tiny", "batch": 2, "length": 8}
    config.cases = {"it": section}
    config.model.num_layers = 7
    (case,) = expand(config, "cpu", {})
    assert case.typed_params().config.num_layers == 7
    assert "num_layers=7" in case.label


@pytest.mark.parametrize(
    ("section", "axes", "message"),
    [
        ({"workload": "matmull"}, {}, "did you mean 'matmul'"),
        ({"shap": "64"}, {}, "did you mean 'shape'"),
        ({"shape": "64x"}, {}, "write N for a square one"),
        ({"shape": "0"}, {}, "write N for a square one"),
        ({"shape": "6"}, {"data": 4}, "m=6 is not divisible by mesh axis data=4"),
        ({"shape": "6x4x8x8"}, {"data": 4}, "batch=6 is not divisible by mesh axis data=4"),
        ({}, {"pipe": 2}, "matmul knows no mesh axis 'pipe': its axes are data, fsdp, model"),
    ],
)
def test_bad_cases_are_refused_by_name(section, axes, message):
    with pytest.raises(RequestError, match=message):
        expand(config_of(**section), "cpu", axes)


@pytest.mark.parametrize(
    ("section", "axes", "message"),
    [
        ({"workload": "memory", "op": "triat", "bytes": 1 << 20}, {}, "did you mean 'triad'"),
        ({"workload": "memory", "op": "triad", "bytes": 64}, {}, "bytes=64 is too little"),
        ({"workload": "memory", "op": "triad"}, {}, "config.cases.it lacks bytes"),
        ({"workload": "transfer", "direction": "h2d", "bytes": 6}, {}, "a multiple of 4"),
        (
            {"workload": "transfer", "direction": "overlap", "bytes": 16352, "chunks": 1},
            {},
            "must be a multiple of 1024",
        ),
        (
            {"workload": "model", "phase": "forward", "model": "tiny", "batch": 3, "length": 8},
            {"data": 2},
            "batch=3 does not divide over mesh axis 'data' of size 2",
        ),
        (
            {"workload": "model", "phase": "forward", "model": "tinny", "batch": 2, "length": 8},
            {},
            "did you mean 'tiny'",
        ),
        (DECODE | {"sampling": "top_p"}, {}, "did you mean 'top_k'"),
        (DECODE | {"phase": "prefill", "sampling": "top_k"}, {}, "is for phase decode"),
        (DECODE | {"temperature": 0}, {}, "temperature must be a number above 0, got 0"),
        (DECODE | {"top_k": 0}, {}, "top_k must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_parameters_of_other_workloads(section, axes, message):
    config = base("test")
    config.cases = {"it": section}
    with pytest.raises(RequestError, match=message):
        expand(config, "cpu", axes)


def test_keys_tell_cases_apart():
    case = Case("a", "matmul", {"shape": "64"}, "fp32")
    assert case.key == Case("b", "matmul", {"shape": "64"}, "fp32").key
    assert case.key != Case("a", "matmul", {"shape": "64"}, "bf16").key
    assert case.key != Case("a", "matmul", {"shape": "64"}, "fp32", "numpy").key


def test_words_for_parameters():
    assert describe({"op": "triad", "bytes": 24 << 20}) == "triad 24 MiB"
    assert describe({"batch": 2, "length": 8, "model": "tiny"}) == "tiny b2 l8"
    assert format_bytes(1536) == "1.5 KiB"
