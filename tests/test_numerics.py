"""The study of numerics: exact cases, planted faults, overflow and underflow, what is said."""

import dataclasses
import types

import jax.numpy as jnp
import numpy as np
import pytest
from test_record import make

from accel_bench import compare_numerics, numerics, numerics_findings, record
from accel_bench import derive as derive_module
from accel_bench.cases import Case
from accel_bench.compare import value_text
from accel_bench.compare_findings import of_comparison
from accel_bench.comparison import Source, make_cell, pair
from accel_bench.errors import RequestError
from accel_bench.execute import execute, start
from accel_bench.timing import Budget
from accel_bench.workloads import numerics as workload_module
from accel_bench.workloads import numerics_inputs, numerics_ops
from accel_bench.workloads.numerics_inputs import Operand, draw
from accel_bench.workloads.numerics_params import Numerics

BUDGET = Budget(0.1, 5, 0.1, 3)


@pytest.fixture(scope="module")
def session():
    return start("cpu")


def run(session, op, size, values="normal", precision="fp32", seed=0):
    case = Case("x", "numerics", {"op": op, "size": size, "range": values}, precision)
    return execute(session, case, {}, seed, BUDGET)


def facts(session, *arguments, **options):
    outcome = run(session, *arguments, **options)
    assert outcome.status == "ok", outcome.reason
    return outcome.measurement.facts


def test_a_product_of_small_whole_numbers_is_exact(session):
    found = facts(session, "matmul", 32, precision="int8")
    assert found["numerics"]["forward"]["ulps"] == {"median": 0.0, "p99": 0.0, "max": 0.0}
    assert found["error"] == 0.0


@pytest.mark.parametrize(("op", "precision", "gradient"), [
    ("matmul", "fp32", True), ("matmul", "bf16", True), ("matmul", "fp8_e4m3", False),
    ("softmax", "fp32", True), ("norm", "fp32", True), ("attention", "fp32", True),
    ("sum", "fp32", False), ("dot", "bf16", False),
])  # fmt: skip
def test_usual_numbers_have_errors_of_rounding(session, op, precision, gradient):
    found = facts(session, op, 32, precision=precision)["numerics"]
    bound = 1e-6 if precision == "fp32" else 3e-3
    assert 0 < found["forward"]["error"] < bound
    assert found["forward"]["nonfinite"] == found["forward"]["lost"] == 0
    assert ("gradient" in found) == gradient
    if gradient:
        assert 0 < found["gradient"]["error"] < bound


def test_one_rounding_to_a_format_is_half_an_ulp_at_most(session):
    found = facts(session, "matmul", 32, precision="bf16")["numerics"]["forward"]["ulps"]
    assert found["median"] == pytest.approx(0.25, abs=0.03)
    assert found["max"] < 0.51


def _attention_64(q, k, v):
    scores = np.einsum("bkgtq,bksq->bkgts", q, k) / np.sqrt(q.shape[-1])
    length = q.shape[-2]
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bkgts,bksq->bkgtq", weights / weights.sum(axis=-1, keepdims=True), v)


def _norm_64(x, scale):
    mean_square = np.mean(x**2, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + numerics_ops.MODEL.norm_epsilon) * scale


@pytest.mark.parametrize(("op", "formula"), [
    ("matmul", np.matmul), ("norm", _norm_64), ("attention", _attention_64),
    ("softmax", lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)),
])  # fmt: skip
def test_references_are_what_numpy_makes_of_the_same_inputs(op, formula):
    chosen = workload_module.operation(Numerics(op, 16), "fp32")
    inputs = [np.asarray(x, np.float64) for x in chosen.draw(0)]
    np.testing.assert_allclose(
        chosen.exact(*inputs)["forward"], formula(*inputs[:-1]), rtol=1e-12, atol=1e-14
    )


def test_a_wrong_reference_is_seen(session, monkeypatch):
    right = facts(session, "norm", 48)["error"]
    honest = workload_module.operation

    def planted(params, precision):
        chosen = honest(params, precision)

        def wrong(*inputs):
            found = chosen.exact(*inputs)
            return {**found, "forward": found["forward"] * (1 + 1e-5)}

        return dataclasses.replace(chosen, exact=wrong)

    monkeypatch.setattr(workload_module, "operation", planted)
    wrong = facts(session, "norm", 48)["error"]
    assert right < 1e-6
    assert wrong == pytest.approx(1e-5, rel=0.05)


def test_squares_that_overflow_are_counted_and_no_crash(session):
    found = facts(session, "norm", 32, "huge")["numerics"]
    # The square is infinite, its inverse root 0: nothing is left of a number of about 1.
    assert found["forward"]["lost"] == found["forward"]["count"] == 64 * 32
    assert found["gradient"]["nonfinite"] > 0
    assert facts(session, "norm", 32, "huge", "fp16")["numerics"]["forward"]["lost"] == 0


def test_denormal_results_are_counted_as_flushed_or_kept(session):
    found = facts(session, "matmul", 32, "denormal")["numerics"]["forward"]
    assert found["denormal"] > 0.9 * found["count"]
    assert 0 <= found["flushed"] <= found["denormal"]
    kept = facts(session, "matmul", 32, "denormal", "fp16")["numerics"]["forward"]
    assert kept["denormal"] > 0.9 * kept["count"]
    assert kept["flushed"] < 0.1 * kept["denormal"]  # fp32 holds what is denormal in fp16


def test_cancelling_terms_lose_digits(session):
    usual, mixed = (facts(session, "dot", 256, values)["error"] for values in ("normal", "mixed"))
    assert mixed > 100 * usual


@pytest.mark.parametrize(("op", "precision", "status", "reason"), [
    ("softmax", "tf32", "skipped", "softmax has no product: in tf32 it is what it is in fp32"),
    ("sum", "mixed_bf16", "skipped", "in mixed_bf16 it is what it is in bf16"),
    ("attention", "int8", "unsupported", "needs scaled operands"),
    ("matmul", "tf32", "unsupported", "not supported by dot_general on CPU"),
])  # fmt: skip
def test_what_has_no_meaning_says_why(session, op, precision, status, reason):
    outcome = run(session, op, 16, precision=precision)
    assert outcome.status == status
    assert reason in outcome.reason


def test_a_program_is_compiled_once_for_all_ranges(session):
    first = run(session, "softmax", 24).measurement
    second = run(session, "softmax", 24, "huge").measurement
    assert first.compile_s and second.compile_s is None
    assert first.facts["inputs_checksum"] != second.facts["inputs_checksum"]


def test_the_same_run_twice_gives_the_same_bits(session):
    one, two, other = (facts(session, "matmul", 32, seed=seed) for seed in (0, 0, 1))
    assert one["result_checksum"] == two["result_checksum"] != other["result_checksum"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
def test_ranges_lie_where_they_say(dtype):
    rng, form = np.random.default_rng(0), numerics_inputs.format_of(dtype)
    operand = Operand((64, 64), dtype)
    size = {
        name: np.abs(draw(rng, operand, name).astype(np.float64))
        for name in ("tiny", "huge", "denormal", "mixed")
    }
    assert np.isfinite(size["huge"]).all()
    assert form.largest / 4 < size["huge"].max() < form.largest
    assert np.median(size["denormal"]) < form.normal / 8
    assert np.median(size["tiny"]) ** 2 < form.normal
    pairs = draw(rng, operand, "mixed").astype(np.float64)
    left = np.abs(pairs[:, ::2] + pairs[:, 1::2])
    assert np.median(left / np.abs(pairs[:, ::2])) < 32 * 2.0**-form.digits


def test_a_gradient_that_underflows_and_overflows_is_counted_at_each_scale():
    exact = np.array([1.0, 1e-9, 1e-3, 0.0, 1e-3])
    scales = (1.0, 2.0**10, 2.0**20)
    results = [(exact * scale).astype(np.float16).astype(np.float64) for scale in scales[:2]]
    with np.errstate(over="ignore"):
        results.append((exact * scales[2]).astype(np.float16).astype(np.float64))
    for result in results:
        result[4] = 0.0  # has cancelled: no scale helps
    found = workload_module.scale_figures(
        scales, [r / s for r, s in zip(results, scales, strict=True)], exact
    )
    assert [row["zeroed"] for row in found] == pytest.approx([1 / 3, 0, 0])
    assert [row["nonfinite"] for row in found] == [0, 0, 1]


def test_the_loss_scale_of_the_tiny_model_in_fp16(session):
    found = facts(session, "loss_scale", 8, precision="fp16")["numerics"]["scales"]
    assert found[0]["scale"] == 1.0
    assert found[0]["zeroed"] > 0
    assert found[16]["scale"] == 2.0**16
    assert found[16]["zeroed"] == 0
    assert found[-1]["nonfinite"] > 0


@pytest.mark.parametrize(("params", "message"), [
    ({"op": "matmull", "size": 4}, "matmull"),
    ({"op": "matmul", "size": 0}, "numerics matmul: size must be a whole number"),
    ({"op": "sum", "size": 48}, "numerics sum: size=48 is no power of 2"),
    ({"op": "sum", "size": 64, "range": "big"}, "big"),
])  # fmt: skip
def test_parameters_that_make_no_sense(params, message):
    with pytest.raises(RequestError, match=message):
        Numerics(**params).check({})


def test_a_mesh_is_refused():
    with pytest.raises(RequestError, match="one device: leave --mesh out"):
        Numerics("matmul", 8).check({"data": 2})


# What is said about rows: made up ones from here on.


def errors(error=1e-7, median=0.3, **counts):
    base = dict.fromkeys(("nonfinite", "beyond", "denormal", "flushed", "lost"), 0)
    return {
        "count": 100, **base, **counts, "error": error, "max_relative": error,
        "ulps": None if median is None else {"median": median, "p99": 2.0, "max": 9.0},
    }  # fmt: skip


def row(op="matmul", size=64, values="normal", precision="fp32", **fields):
    found = fields.pop("numerics", None) or {"forward": errors(fields.pop("error", 1e-7))}
    known = {"numerics": found, "error": (found.get("forward") or found["gradient"])["error"]}
    return make(
        workload="numerics", params={"op": op, "range": values, "size": size},
        precision=precision, facts=known | fields.pop("facts", {}), **fields,
    )  # fmt: skip


def said(records):
    return list(numerics_findings.sentences(records, {}))


def test_the_arithmetic_that_was_delivered_is_named():
    rows = [row(precision="fp32_default", error=2.4e-4), row(precision="fp32", error=2e-7)]
    assert said(rows)[:2] == [
        "fp32_default multiplies as tf32/fp16 here: relative error 2.4e-04 at matmul 64.",
        "fp32 multiplies as fp32 here: relative error 2.0e-07 at matmul 64.",
    ]


@pytest.mark.parametrize(("exponent", "words"), [
    (0.5, "one after the other"), (1.0, "one after the other"), (0.05, "in pairs or many blocks"),
    (0.25, "in blocks, or by several accumulators"),
])  # fmt: skip
def test_the_order_of_a_sum_is_told_by_the_growth_of_its_error(exponent, words):
    rows = [
        row("sum", k, numerics={
            "forward": errors(1e-8 * k**exponent),
            "orders": {"sequential": 1e-8 * k**0.5, "pairwise": 1e-8 * k**0.05},
        })
        for k in (2**6, 2**10, 2**14, 2**20)
    ]  # fmt: skip
    (found,) = numerics.growths(rows)
    assert found.exponent == pytest.approx(exponent)
    if exponent < 1:
        assert found.looks_like == words
    text = next(s for s in said(rows) if s.startswith("sum in fp32")) if exponent < 1 else ""
    if text:
        assert f"The error grows as k^{exponent:.2f} from 64 to 1048576 terms" in text
        assert "k^0.50 one after the other" in text


def test_sums_that_are_rounded_once_and_scales_that_cure_nothing_share_a_sentence():
    exact = {**errors(1e-3), "ulps": {"median": 0.25, "p99": 0.49, "max": 0.5}}
    known = {"sequential": 1e-2, "pairwise": 2e-3}
    rows = [
        row("sum", k, precision=name, numerics={"forward": exact, "orders": known})
        for name in ("bf16", "fp16") for k in (64, 256, 1024)
    ]  # fmt: skip
    scales = [{"scale": 2.0**n, "zeroed": 0.0, "nonfinite": 0, "error": 0.0} for n in range(3)]
    rows += [
        row("loss_scale", 8, precision=name, numerics={"gradient": errors(), "scales": scales})
        for name in ("fp32", "bf16")
    ]
    assert said(rows)[:2] == [
        "Terms are added up so exactly that only the rounding of the result shows in sum in bf16, "
        "fp16.",
        "No scale of the loss is needed in fp32, bf16, and none tried overflows.",
    ]


def test_the_scale_that_cures_fp16_is_named():
    scales = [
        {"scale": 2.0**n, "zeroed": max(0.0, 0.3 - 0.1 * n), "nonfinite": int(n > 9), "error": 0.0}
        for n in range(12)
    ]
    rows = [row("loss_scale", 32, precision="fp16",
                numerics={"gradient": errors(1e-3), "scales": scales})]  # fmt: skip
    assert (
        "Gradient of the loss in fp16: unscaled, 30 % of it underflows to 0; from a scale of 2^3 "
        "none does; nothing overflows up to 2^9." in said(rows)
    )


def test_overflow_and_flushing_are_named():
    rows = [
        row("norm", values="huge", numerics={"forward": errors(1.0, nonfinite=25, lost=50)}),
        row(values="denormal", numerics={"forward": errors(1.0, denormal=80, flushed=60)}),
    ]
    texts = said(rows)
    assert any("norm of huge numbers (25 % in fp32)" in text for text in texts)
    assert any("norm of huge numbers (50 % in fp32)" in text for text in texts)
    assert "Of results that should be denormal, these came out as 0: 75 % in fp32." in texts


OTHER = {"kind": "measured", "platform": "gpu", "device_kind": "Some GPU", "num_devices": 1}


def compared(one, other):
    sources = [
        Source(letter, types.SimpleNamespace(), "", records, [], None)  # type: ignore[arg-type]
        for letter, records in zip("AB", (one, other), strict=True)
    ]
    return pair(sources)


def texts(one, other):
    return [finding.text for finding in of_comparison(compared(one, other))]


def test_errors_of_two_machines_that_part_are_named_with_their_ratio():
    found = texts([row(error=1e-7)], [row(error=2e-3, target=OTHER)])
    assert found == [
        "matmul normal 64 fp32 is not the same arithmetic: relative error 1.0e-07 (0.30 ulps) on A "
        "and 2.0e-03 (0.30 ulps) on B (2e+04 times)."
    ]
    assert texts([row(error=1e-7)], [row(error=2e-7, target=OTHER)]) == []


def test_what_one_flushes_and_the_other_keeps():
    flushing, keeping = (
        row(values="denormal", numerics={"forward": errors(1e-7, denormal=80, flushed=n)})
        for n in (80, 0)
    )
    assert texts([flushing], [keeping]) == [
        "In fp32, denormal results come out as 0 80 times on A and 0 times on B."
    ]


def test_other_inputs_are_an_error_with_a_reason_and_nothing_else_is_said_of_them():
    one = row(error=1e-7, facts={"inputs_checksum": "a", "result_checksum": "c"},
              env={"packages": {"jax": "0.10.2"}})  # fmt: skip
    other = row(error=2e-3, facts={"inputs_checksum": "b", "result_checksum": "d"},
                env={"packages": {"jax": "0.12.0"}})  # fmt: skip
    (finding,) = of_comparison(compared([one], [other]))
    assert finding.error
    assert finding.text.startswith(
        "Not comparable: A and B did not compute with the same numbers in 1 of 1 rows"
    )
    assert "packages differ: jax 0.10.2 / 0.12.0" in finding.text
    assert "jax_threefry_partitionable" in finding.text


def checked(bits, size, target=None):
    sums = {"inputs_checksum": "same", "result_checksum": bits}
    fields = {"target": target} if target else {}
    return make(params={"shape": str(size)}, facts=sums, **fields)


def test_equal_bits_are_counted_and_differing_rows_of_one_machine_named():
    one = [checked("a", 1), checked("b", 2)]
    assert texts(one, one) == ["The results' bits are equal in 2 of 2 rows of A and B."]
    planted = [checked("a", 1), checked("x", 2)]
    assert texts(one, planted) == [
        "The results' bits are equal in 1 of 2 rows of A and B; they differ in matmul 2 fp32."
    ]
    elsewhere = [checked("a", 1), checked("x", 2, OTHER)]
    assert texts(one, elsewhere)[-1] == "The results' bits are equal in 1 of 2 rows of A and B."


def test_the_table_shows_what_parts_most_first():
    one = [row(size=8, error=1e-7), row(size=16, error=1e-7), row(size=32, error=1e-7)]
    other = [row(size=8, error=2e-7), row(size=16, error=1e-3), row(size=32, error=1e-7)]
    found = compared(one, other)
    assert [p.row.label for p in compare_numerics.differences(found)] == [
        "matmul normal 16", "matmul normal 8", "matmul normal 32",
    ]  # fmt: skip
    table = compare_numerics.table(found)
    assert table
    assert table.row_count == 2
    assert str(table.title) == "numerics: 1 of 3 errors are the same"
    assert compare_numerics.table(compared([make()], [make()])) is None


def test_a_row_has_an_error_and_no_time():
    made = row(numerics={"forward": errors(1e-7, nonfinite=3)})
    assert derive_module.time(made) is None
    assert value_text(make_cell(made, {})) == "1.0e-07 (0.30 ulps, 3 not finite)"


def test_two_deterministic_runs_give_the_same_bits_and_a_planted_one_is_named(main_py, tmp_path):
    cases = {
        "n": {"workload": "numerics", "op": ("norm", "sum"), "size": 32},
        "m": {"workload": "matmul", "shape": "64"},
    }
    for name in ("a", "b"):
        done = main_py(
            "run", "--config=smoke", "--device=cpu", "--deterministic", f"--workdir={name}",
            f"--config.cases={cases}", "--config.measure.max_seconds=0.05",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "3 ok" in done.stdout
    shown = main_py("compare", "a", "b").stdout
    assert "The results' bits are equal in 3 of 3 rows of A and B." in shown
    assert "errors are the same" not in shown  # a table of what parts, where something does
    path = tmp_path / "b" / record.FILE_NAME
    rows = record.read(path).records
    norm = next(r for r in rows if r.params.get("op") == "norm")
    norm.facts["result_checksum"] = "planted"
    path.write_text("".join(record.to_line(r) + "\n" for r in rows))
    shown = main_py("compare", "a", "b").stdout
    assert "equal in 2 of 3 rows of A and B; they differ in numerics norm 32 fp32." in shown
