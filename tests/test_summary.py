from test_compare import row, write
from test_compiled_tables import compiled, search
from test_record import make

from accel_bench import summary


def test_a_run_is_told_in_ten_lines_with_what_went_wrong(tmp_path):
    wrong = make(
        params={"shape": "9"}, status="oom", reason="needs 256 GiB, 20 GiB are free", samples_s=[]
    )
    records = [*(row(shape=str(n)) for n in range(64, 90)), wrong, *search("oom_compile", "ok")]
    lines = summary.lines(write(tmp_path / "one", records))
    assert len(lines) <= summary.LINES
    assert "measured on Some CPU; compiled for tpu:v5e:1x1, tpu:v5e:2x2" in lines[0]
    assert lines[1].startswith("29 rows: 27 ok, 1 oom, 1 oom_compile")
    assert any("needs 256 GiB" in line for line in lines)
    assert any(line.startswith("Fastest: ") for line in lines)
    assert any(line.startswith("Compiled, not run: ") for line in lines)


def test_a_compiled_run_has_a_summary_too(tmp_path):
    fits = compiled(facts={"memory": {"needed": 1, "usable": 2, "fits": True}})
    lines = summary.lines(write(tmp_path / "one", [fits]))
    assert "Compiled, not run: 1 of 1 fit; bound 1 by compute, at least 1.00 ms" in lines[2]
