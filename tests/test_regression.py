import io

import numpy as np
import pytest
from rich.console import Console
from test_compare import write
from test_record import make

from accel_bench import comparison, regression
from accel_bench.compare import check_baseline
from accel_bench.errors import RequestError


def samples(seed, scale=1.0, count=30, spread=0.01):
    """Times as they come: a floor, and a tail above it."""
    drawn = np.random.default_rng(seed).gamma(2.0, spread / 2, count)
    return [float(scale * (1 + x)) for x in drawn]


def run(path, seed, scale=1.0, cases=20, **fields):
    records = [
        make(params={"shape": str(64 + n)}, samples_s=samples((seed, n), scale), **fields)
        for n in range(cases)
    ]
    return write(path, records)


def kinds(old, new, threshold=5.0):
    one, other = comparison.read_all([old, new])
    return [verdict.kind for verdict in regression.verdicts(one, other, threshold)]


def test_a_slowdown_of_ten_per_cent_is_found_and_half_a_per_cent_is_none(tmp_path):
    base = run(tmp_path / "base", 1)
    assert set(kinds(base, run(tmp_path / "slow", 2, 1.10))) == {"slower"}
    assert set(kinds(base, run(tmp_path / "bit", 3, 1.005))) == {"same"}
    assert set(kinds(base, run(tmp_path / "fast", 4, 0.90))) == {"faster"}


def test_a_run_against_itself_raises_few_alarms(tmp_path):
    """Also where any change would count: the test alone must hold."""
    base, again = run(tmp_path / "a", 5, cases=200), run(tmp_path / "b", 6, cases=200)
    assert kinds(base, again).count("slower") == 0
    assert kinds(base, again, threshold=0.0).count("slower") <= 0.05 * 200


def test_what_chance_moves_between_the_runs_is_no_slowdown(tmp_path):
    """As on a machine with neighbours: each case of each run is shifted as a whole."""
    shifts = np.random.default_rng(7).normal(1.0, 0.06, (2, 200))
    paths = []
    for number, name in enumerate("ab"):
        records = [
            make(params={"shape": str(64 + n)}, samples_s=samples((number, n), shifts[number, n]))
            for n in range(200)
        ]
        paths.append(write(tmp_path / name, records))
    found = kinds(*paths)
    assert found.count("slower") <= 0.05 * 200
    assert "unclear" in found
    # A slowdown far beyond that is still found, and does not hide itself.
    slow = [
        make(params={"shape": str(64 + n)}, samples_s=samples((1, n), shifts[1, n] * (1 + n % 2)))
        for n in range(200)
    ]
    worse = kinds(paths[0], write(tmp_path / "c", slow))
    assert worse[1::2].count("slower") == 100
    assert worse[::2].count("slower") <= 10


def test_the_effect_is_the_share_of_pairs_in_which_the_new_one_is_slower(tmp_path):
    one = write(tmp_path / "a", [make(samples_s=[1.0] * 10)])
    other = write(tmp_path / "b", [make(samples_s=[2.0] * 10)])
    base, new = comparison.read_all([one, other])
    (verdict,) = regression.verdicts(base, new)
    assert (verdict.effect, verdict.change) == (1.0, 1.0)
    assert verdict.p is not None
    assert verdict.p < 1e-4


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ({}, {"status": "oom", "reason": "too big", "samples_s": []}, "broken"),
        ({"status": "oom", "reason": "too big", "samples_s": []}, {}, "mended"),
        ({"status": "skipped", "reason": "no", "samples_s": []}, {}, "mended"),
        ({}, {"status": "skipped", "reason": "no", "samples_s": []}, "broken"),
        ({"samples_s": [1.0] * 8}, {"samples_s": [9.0] * 8}, "unclear"),
        ({"samples_s": [1.0] * 9}, {"samples_s": [9.0] * 9}, "slower"),
        (
            {"samples_s": [1.0] * 9, "facts": {"flags": ["noisy"]}},
            {"samples_s": [9.0] * 9},
            "unclear",
        ),
    ],
)
def test_what_cannot_be_told_is_not_called_slower(tmp_path, old, new, kind):
    base = write(tmp_path / "a", [make(**({"samples_s": [1.0] * 10} | old))])
    other = write(tmp_path / "b", [make(**({"samples_s": [1.0] * 10} | new))])
    assert kinds(base, other) == [kind]


def test_a_case_that_is_gone_is_a_regression(tmp_path):
    base = run(tmp_path / "a", 1, cases=3)
    other = run(tmp_path / "b", 2, cases=2)
    assert kinds(base, other) == ["same", "same", "missing"]


def checked(*arguments):
    console = Console(width=160, record=True, file=io.StringIO())
    status = check_baseline(*arguments, console=console)
    return status, console.export_text()


def test_the_exit_status_is_a_verdict_for_ci(tmp_path):
    base = run(tmp_path / "a", 1)
    status, text = checked(base, [run(tmp_path / "b", 2, 1.10)], 5.0)
    assert status == 1
    assert "20 slower" in text
    assert checked(base, [run(tmp_path / "c", 2, 1.005)], 5.0)[0] == 0
    assert checked(base, [tmp_path / "b"], 20.0)[0] == 0
    with pytest.raises(RequestError, match="takes one run"):
        checked(base, [base, base], 5.0)
    with pytest.raises(RequestError, match="--threshold=-1"):
        checked(base, [base], -1.0)
    other = run(tmp_path / "d", 2, config_hash="another")
    with pytest.raises(RequestError, match="nothing to compare"):
        checked(base, [other], 5.0)
    meshed = run(tmp_path / "e", 2, mesh={"data": 4})
    with pytest.raises(RequestError, match="on one device and .* on mesh data:4"):
        checked(base, [meshed], 5.0)
