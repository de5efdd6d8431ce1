from test_compare import write
from test_compiled_tables import compiled
from test_derive import matmul

from accel_bench import comparison
from accel_bench.compare_findings import of_comparison

OTHER = {"kind": "measured", "platform": "gpu", "device_kind": "Some GPU", "num_devices": 1}


def said(tmp_path, *runs):
    paths = [write(tmp_path / str(n), records) for n, records in enumerate(runs)]
    return list(of_comparison(comparison.compare(paths)))


def product(n, seconds, precision="fp32", target=None, **facts):
    fields = {"target": target} if target else {}
    return matmul(
        seconds, flops=2.0 * n**3, params={"shape": str(n)}, precision=precision, facts=facts,
        **fields,
    )  # fmt: skip


def test_the_size_at_which_one_overtakes_the_other(tmp_path):
    cpu = [product(64, 1e-6), product(1024, 1e-2), product(4096, 1.0)]
    gpu = [product(64, 4e-6, target=OTHER), product(1024, 1e-3, target=OTHER),
           product(4096, 1e-2, target=OTHER)]  # fmt: skip
    (finding,) = said(tmp_path, cpu, gpu)
    assert finding.text == "B against A in fp32: 0.250x as fast at 64, 10.0x at 1024."
    assert finding.rows == ("matmul 64 fp32", "matmul 1024 fp32")


def test_a_precision_that_only_one_has_in_hardware(tmp_path):
    cpu = [product(512, 1e-3), product(512, 2e-3, "bf16", flags=["emulated"])]
    gpu = [product(512, 1e-5, target=OTHER), product(512, 2e-6, "bf16", target=OTHER)]
    texts = [finding.text for finding in said(tmp_path, cpu, gpu)]
    assert (
        "bf16 is emulated on A, which B has in hardware: at best 134 GFLOP/s, 0.50x its fp32."
        in (texts)
    )


def test_numerics_that_differ(tmp_path):
    cpu = [product(512, 1e-3, "fp32_default", error=3e-7)]
    gpu = [product(512, 1e-3, "fp32_default", target=OTHER, error=2.5e-4)]
    (finding,) = said(tmp_path, cpu, gpu)
    assert "the relative error is 3.0e-07 on A and 2.5e-04 on B" in finding.text
    same = [product(512, 1e-3, "fp32_default", target=OTHER, error=4e-7)]
    (tmp_path / "same").mkdir()
    assert said(tmp_path / "same", cpu, same) == []


def estimate(binds, **figures):
    base = {"compiler_s": None, "bound_s": 2e-3, "compute_s": 1e-3, "memory_s": 1e-3,
            "network_s": 0.0, "binds": binds}  # fmt: skip
    return {"estimate": base | figures, "program": {"flops_vs_work": 1.0}}


def test_what_binds_differs_and_what_the_network_costs(tmp_path):
    tpu = compiled(facts=estimate("compute"))
    gpu = compiled(
        name="gpu:h100_sxm:8", facts=estimate("network", network_s=2e-3, axes_s={"fsdp": 2e-3})
    )
    texts = [finding.text for finding in said(tmp_path, [tpu], [gpu])]
    assert texts == [
        "matmul 64 fp32 is bound by compute on A (at least 2.00 ms); network on B (at least "
        "2.00 ms).",
        "On B the network binds matmul 64 fp32: collectives keep a link busy for 2.00 ms a step, "
        "arithmetic takes 1.00 ms, most over fsdp (2.00 ms).",
    ]


def test_padding_and_launches(tmp_path):
    padded = compiled(facts={"program": {"flops_vs_work": 1.5}})
    plain = compiled(name="tpu:v4:1x1x1", facts={"program": {"flops_vs_work": 1.0}})
    texts = [finding.text for finding in said(tmp_path, [padded], [plain])]
    assert "Padding: A multiplies 1.50x what matmul 64 fp32 needs." in texts
    small = product(64, 1e-6, flags=["dispatch-bound"], launch_queued_s=5e-7)
    (tmp_path / "small").mkdir()
    (finding,) = said(tmp_path / "small", [small], [product(64, 1e-6, target=OTHER)])
    assert "On A launching is what is timed up to matmul 64 fp32: a step takes 1.00 us" in (
        finding.text
    )
