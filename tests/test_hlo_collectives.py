import jax
import jax.numpy as jnp
import pytest
from hlo_texts import TPU, TPU_ENTRY, facts, program, text_of
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


def test_collectives_of_a_program_over_named_axes():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def every(a):
        return (
            jax.lax.psum(a, "model"),
            jax.lax.all_gather(a, "data"),
            jax.lax.psum_scatter(a, ("data", "model"), tiled=True),
            jax.lax.ppermute(a, "model", [(0, 1), (1, 2), (2, 3), (3, 0)]),
            jax.lax.all_to_all(a, "model", 0, 1, tiled=True),
        )

    mapped = jax.shard_map(every, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    x = jnp.ones((16, 16))
    found = facts(text_of(mapped, x), data=2, model=4)
    kinds = {one["kind"]: one for one in found["collectives"]}
    told = {
        kind: (one["axes"], one["group_size"], one["bytes"], one["wire_bytes"])
        for kind, one in kinds.items()
    }
    n = x.nbytes
    assert told == {
        "all-reduce": (["model"], 4, n, 2 * n * 3 // 4),
        "all-gather": (["data"], 2, 2 * n, n),
        "reduce-scatter": (["data", "model"], 8, n, n * 7 // 8),
        "collective-permute": (["model"], 4, n, n),
        "all-to-all": (["model"], 4, n, n * 3 // 4),
    }
    assert all(one["calls"] == 1 and one["dtype"] == "f32" for one in kinds.values())
    assert all(one["overlapped"] is False for one in kinds.values())


def test_a_collective_in_a_loop_is_counted_each_trip():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    shard = NamedSharding(mesh, P("data", None))

    def layers(x, w):
        def layer(x, w):
            return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), shard), None

        return jax.lax.scan(layer, x, w)[0]

    x = jax.device_put(jnp.ones((64, 128)), shard)
    w = jax.device_put(jnp.ones((5, 128, 128)), NamedSharding(mesh, P(None, "model", None)))
    found = facts(text_of(layers, x, w), data=2, model=4)
    reduced = [one for one in found["collectives"] if one["kind"] == "all-reduce"]
    assert [(one["axes"], one["calls"], one["bytes"]) for one in reduced] == [
        (["model"], 5, 5 * 32 * 128 * 4)
    ]
    assert found["flops"] == 5 * 2 * 32 * 32 * 128


def test_a_gpus_pair_with_work_between_is_overlapped():
    others = (
        "%f (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        "  ROOT %n = f32[8]{0} negate(%p)\n}"
    )
    lines = [
        "  %p = bf16[512,64]{1,0} parameter(0)",
        "  %q = f32[8]{0} parameter(1)",
        "  %s = (bf16[512,64]{1,0}, bf16[2048,64]{1,0}) all-gather-start(%p), channel_id=4, "
        "replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}, "
        'backend_config={"collective_backend_config":{"is_sync":false}}',
        "  %w = f32[8]{0} fusion(%q), kind=kLoop, calls=%f",
        "  %b = f32[2,4]{1,0} bitcast(%w)",
        "  ROOT %d = bf16[2048,64]{1,0} all-gather-done(%s)",
    ]
    whole = 2048 * 64 * 2
    (one,) = facts(program("\n".join(lines), others), fsdp=4)["collectives"]
    assert (one["kind"], one["axes"], one["dtype"]) == ("all-gather", ["fsdp"], "bf16")
    assert (one["bytes"], one["wire_bytes"], one["overlapped"]) == (whole, whole * 3 // 4, True)
    named = '  %c = f32[8]{0} custom-call(%q), custom_call_target="ConcatBitcast"'
    idle = [*(lines[i] for i in (0, 1, 3, 2)), named, *lines[4:]]
    assert facts(program("\n".join(idle), others), fsdp=4)["collectives"][0]["overlapped"] is False
    synchronous = "\n".join(lines).replace("false", "true")
    assert facts(program(synchronous, others), fsdp=4)["collectives"][0]["overlapped"] is False
    unscheduled = program("\n".join(lines), others, header="num_partitions=4")
    assert facts(unscheduled, fsdp=4)["collectives"][0]["overlapped"] is None
    other = facts(program("\n".join(lines), others), a=2, b=3)
    assert other["collectives"][0]["axes"] is None
    assert "do not lie along axes" in other["collectives"][0]["reason"]
    # Operand and result, and the fusion's two.
    assert other["bytes"] == whole // 4 + whole + 2 * 32


def test_a_collective_in_a_wrapper_is_counted_once():
    others = """%wrapped (x: f32[64]) -> f32[16] {
  %x = f32[64]{0} parameter(0)
  ROOT %r = f32[16]{0} reduce-scatter(%x), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}
}"""
    body = """  %p = f32[64]{0} parameter(0)
  %a = f32[8,8]{1,0} parameter(1)
  %s = ((f32[64]{0}), f32[16]{0}) async-start(%p), calls=%wrapped
  %d = f32[8,8]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %e = f32[16]{0} async-done(%s), calls=%wrapped"""
    found = facts(program(body, others), x=4)
    (one,) = found["collectives"]
    assert (one["kind"], one["calls"], one["bytes"]) == ("reduce-scatter", 1, 256)
    assert (one["wire_bytes"], one["overlapped"]) == (192, True)
    assert found["bytes"] == 256 + 64 + 2 * 256


def test_a_tpus_collectives_inside_fusions():
    """One gather in three fusions is one; an all-reduce of which a part is kept is a scatter."""
    found = facts(program(TPU_ENTRY, TPU), fsdp=4)
    gather, scatter = found["collectives"]
    assert (gather["kind"], gather["axes"], gather["calls"]) == ("all-gather", ["fsdp"], 1)
    assert (gather["bytes"], gather["overlapped"]) == (2048 * 8 * 2, True)
    assert (scatter["kind"], scatter["axes"], scatter["calls"]) == ("reduce-scatter", ["fsdp"], 1)
    assert (scatter["bytes"], scatter["wire_bytes"]) == (128 * 64 * 2, 128 * 64 * 2 * 3 // 4)
    assert scatter["overlapped"] is False
    # Everything else lies on the chip.
    assert found["bytes"] == 2048 * 8 * 2
    chip, main = "bf16[512,8]{1,0:T(8,128)(2,1)S(1)}", "bf16[512,8]{1,0:T(8,128)(2,1)}"
    outside = facts(program(TPU_ENTRY, TPU).replace(chip, main), fsdp=4)
    assert outside["bytes"] == found["bytes"] + 512 * 8 * 2
    assert found["flops"] == 2 * 8 * 8 * 8
    assert found["code"]["kernels"] == {"EmitAllBatchInSublanes": {"static": 1, "executed": 1}}
    assert found["cycles"] == 500
    assert found["cycles_without"] == {"fusion": 3, "negate": 1}


@pytest.mark.parametrize(
    "attributes", ["channel_id=1, replica_groups={{0},{1},{2},{3}}", "replica_groups={}"]
)
def test_a_collective_with_nobody_is_left_out(attributes):
    """Without a channel it is one between replicas, of which there is one."""
    body = f"  %p = f32[8]{{0}} parameter(0)\n  ROOT %r = f32[8]{{0}} all-reduce(%p), {attributes}"
    assert facts(program(body), x=4)["collectives"] == []


def test_a_collective_in_an_endless_loop_has_no_amount():
    text = text_of(
        jax.shard_map(
            lambda x: jax.lax.while_loop(
                lambda a: a.sum() < 1e9, lambda a: jax.lax.psum(a, "x"), x
            ),
            mesh=jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)),
            in_specs=P(),
            out_specs=P(),
            check_vma=False,
        ),
        jnp.ones((64,)),
    )
    (one,) = facts(text, x=8)["collectives"]
    assert (one["axes"], one["calls"], one["bytes"], one["wire_bytes"]) == (["x"], None, None, None)
