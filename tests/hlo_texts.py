"""What the tests of `accel_bench.hlo` share: programs' texts, and what is read from them."""

import functools
import json

import jax
import jax.numpy as jnp

from accel_bench.hlo.analysis import analyse
from accel_bench.hlo.text import Instruction, parse


def text_of(fn, *arguments) -> str:
    """The program that is compiled here for a function of these arguments."""
    return jax.jit(fn).lower(*arguments).compile().as_text() or ""


def line(text: str) -> Instruction:
    """The instruction that a line holds."""
    module = parse(text)
    assert not module.problems
    ((_, instruction),) = module.instructions()
    return instruction


def facts(text: str, **axes: int) -> dict:
    """What `analyse` finds on a mesh of these axes, as a record keeps it."""
    found = analyse(text, axes)
    return json.loads(json.dumps(found, allow_nan=False))


def program(body: str, others: str = "", header: str = "is_scheduled=true, num_partitions=4"):
    """A module whose entry computation has these lines."""
    return f"HloModule m, {header}\n\n{others}\n\nENTRY %main (p: f32[]) -> f32[] {{\n{body}\n}}\n"


@functools.cache
def nested_loops() -> str:
    """Three trips of an outer loop around five of an inner, each with a product."""

    def inner(i, x):
        return jnp.tanh(x @ x)

    def outer(i, x):
        return jax.lax.fori_loop(2, 7, inner, x) + 1

    return text_of(lambda x: jax.lax.fori_loop(0, 3, outer, x), jnp.ones((64, 64)))


TPU = """%all-reduce-scatter.5 (input.5: bf16[128,64]) -> bf16[128,16] {
  %input.5 = bf16[128,64]{1,0:T(8,128)(2,1)} parameter(0)
  %all-reduce.30 = bf16[128,64]{1,0:T(8,128)(2,1)} all-reduce(%input.5), channel_id=45, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%add.11.clone, frontend_attributes={from-cross-replica-sharding="true"}
  %partition-id.9 = u32[] partition-id()
  %constant.1 = u32[] constant(16)
  %multiply.1 = u32[] multiply(%partition-id.9, %constant.1)
  %constant.2 = u32[] constant(0)
  ROOT %dynamic-slice.1 = bf16[128,16]{1,0:T(8,128)(2,1)} dynamic-slice(%all-reduce.30, %constant.2, %multiply.1), dynamic_slice_sizes={128,16}
}

%start (p: bf16[512,8]) -> (bf16[512,8], bf16[2048,8], u32[]) {
  %p = bf16[512,8]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %g = bf16[2048,8]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=42, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="1"}
  ROOT %c = (bf16[512,8]{1,0:T(8,128)(2,1)S(1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.3 (p: bf16[512,8], q: bf16[2048,8], a: bf16[8,8]) -> (bf16[8,8], bf16[2048,8]) {
  %p = bf16[512,8]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %q = bf16[2048,8]{1,0:T(8,128)(2,1)} parameter(1)
  %a = bf16[8,8]{1,0:T(8,128)(2,1)S(1)} parameter(2)
  %convolution.1 = bf16[8,8]{1,0:T(8,128)(2,1)} convolution(%a, %a), dim_labels=bf_io->bf
  %g = bf16[2048,8]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=42, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="1"}
  ROOT %t = (bf16[8,8]{1,0:T(8,128)(2,1)S(1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}) tuple(%convolution.1, %q, %g)
}

%done (p: bf16[512,8], q: bf16[2048,8], u: u32[]) -> bf16[2048,8] {
  %p = bf16[512,8]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %q = bf16[2048,8]{1,0:T(8,128)(2,1)} parameter(1)
  %g = bf16[2048,8]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=42, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="1"}
  %u = u32[]{:S(2)} parameter(2)
  ROOT %c = bf16[2048,8]{1,0:T(8,128)(2,1)} custom-call(%p, %q, %g, %u), custom_call_target="AsyncCollectiveDone"
}"""  # noqa: E501
TPU_ENTRY = """  %p = bf16[512,8]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %a = bf16[8,8]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  %i = bf16[128,64]{1,0:T(8,128)(2,1)S(1)} parameter(2)
  %s = (bf16[512,8]{1,0:T(8,128)(2,1)S(1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) fusion(%p), kind=kCustom, calls=%start
  %x = bf16[512,8]{1,0:T(8,128)(2,1)S(1)} get-tuple-element(%s), index=0
  %y = bf16[2048,8]{1,0:T(8,128)(2,1)} get-tuple-element(%s), index=1
  %u = u32[]{:S(2)} get-tuple-element(%s), index=2
  %f = (bf16[8,8]{1,0:T(8,128)(2,1)S(1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}, bf16[2048,8]{1,0:T(8,128)(2,1)}) fusion(%x, %y, %a), kind=kOutput, calls=%async_collective_fusion.3, backend_config={"window_config":{"estimated_cycles":"500"},"convolution_algorithm_config":{"emitter":"EmitAllBatchInSublanes"}}
  %d = bf16[2048,8]{1,0:T(8,128)(2,1)} fusion(%x, %y, %u), kind=kCustom, calls=%done
  %n = bf16[128,64]{1,0:T(8,128)(2,1)S(1)} negate(%i), backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}
  ROOT %r = bf16[128,16]{1,0:T(8,128)(2,1)S(1)} fusion(%n), kind=kCustom, calls=%all-reduce-scatter.5"""  # noqa: E501
