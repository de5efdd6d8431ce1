"""Shapes against published counts, and shapes against meshes."""

import dataclasses
import subprocess
import sys

import pytest

from models.costs import param_count
from models.sizes import SIZES, ModelConfig, check_divisible, gemm_shapes

PUBLISHED = [name for name, config in SIZES.items() if config.published_params]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_matches_the_published_one(name: str):
    config = SIZES[name]
    assert config.published_params is not None
    if name.startswith("llama"):  # the same architecture: exact
        assert param_count(config) == config.published_params
    else:  # no biases and no learned positions here
        assert param_count(config) == pytest.approx(config.published_params, rel=0.01)


def test_planning_needs_no_jax():
    code = "import sys, models.sizes, models.costs; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_gemm_shapes_hold_every_multiplied_weight_once():
    for config in SIZES.values():
        shapes = gemm_shapes(config, tokens=3)
        assert {m for m, _, _ in shapes.values()} == {3}
        unembed = shapes.pop("unembed")
        layer = sum(k * n for _, k, n in shapes.values())
        tables = unembed[1] * unembed[2] * (1 if config.tied_embedding else 2)
        norms = (2 * config.num_layers + 1) * config.width
        assert config.num_layers * layer + tables + norms == param_count(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 3}, "num_heads=4 is not divisible by num_kv_heads=3"),
        ({"head_size": 15}, "head_size=15 must be even"),
        ({"num_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"activation": "relu"}, "activation='relu' is not one of gelu, swiglu"),
        ({"attention": "flash"}, "attention='flash' is not one of einsum, jax, cudnn"),
        ({"remat": "some"}, "remat='some' is not one of"),
        ({"dtype": "int8"}, "dtype='int8' is not one of"),
    ],
)
def test_a_senseless_config_is_refused_in_one_line(change: dict, message: str):
    with pytest.raises(ValueError, match=message) as error:
        dataclasses.replace(SIZES["tiny"], **change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("batch", "length", "mesh_shape", "message"),
    [
        (6, 8, {"data": 4}, "batch=6 does not divide over mesh axis 'data' of size 4"),
        (6, 8, {"data": 2, "fsdp": 2}, "batch=6 .* mesh axes 'data' x 'fsdp' of size 4"),
        (8, 6, {"seq": 4}, "length=6 does not divide over mesh axis 'seq' of size 4"),
        (8, 8, {"model": 4}, "num_kv_heads=2 does not divide over mesh axis 'model' of size 4"),
        (8, 8, {"modle": 2}, "mesh axis 'modle' is not one of data, fsdp, model, seq"),
    ],
)
def test_what_does_not_divide_is_named(batch, length, mesh_shape, message):
    with pytest.raises(ValueError, match=message):
        check_divisible(SIZES["tiny"], batch, length, mesh_shape)


def test_what_divides_passes():
    check_divisible(SIZES["tiny"], 8, 8, {"data": 2, "fsdp": 2, "model": 2, "seq": 2})
    check_divisible(SIZES["llama2_70b"], 1024, 4096, {"data": 2, "fsdp": 32, "model": 8})


def test_configs_are_hashable_and_compare_by_value():
    assert len({SIZES["tiny"], dataclasses.replace(SIZES["tiny"])}) == 1
    assert isinstance(SIZES["tiny"], ModelConfig)
