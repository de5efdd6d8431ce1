"""The command `compare --claims`: what is printed and written, and what is refused."""

import io
import json
from html import unescape
from pathlib import Path

import pytest
from conftest import assert_refused
from rich.console import Console
from test_claims_measured import product, thread
from test_compare import write
from test_compiled_tables import compiled
from test_report import HOSTILE, SHOWN

from accel_bench.claims.criteria import RULES
from accel_bench.claims.report import Outputs, report
from accel_bench.claims.table import CLAIMS
from accel_bench.errors import RequestError
from accel_bench.report import markup


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What is printed, and the three files, of one run with hostile names."""
    place = tmp_path_factory.mktemp("claims")
    strange = product(50.0, {"kind": "measured", "platform": "cpu", "device_kind": HOSTILE})
    run = write(place / "run", [thread(20.0), strange, compiled()])
    files = {name: place / f"out.{name}" for name in ("html", "markdown", "json")}
    console = Console(width=160, record=True, file=io.StringIO())
    report([run], console, Outputs(**files))
    return console.export_text(), {name: file.read_text() for name, file in files.items()}


def test_every_claim_part_and_rule_is_shown_everywhere(written):
    text, files = written
    plain = json.loads(files["json"])
    assert [claim["number"] for claim in plain["claims"]] == list(range(1, 21))
    page = unescape(files["html"])
    for claim, told in zip(CLAIMS, plain["claims"], strict=True):
        assert f"{claim.number}. {claim.statement}: {told['verdict']}" in text
        assert claim.statement in page
        for part in told["parts"]:
            assert f"{part['said']}: {part['verdict']}: {part['why']}" in text
            assert part["why"] in page
            for evidence in part["evidence"]:
                assert evidence["text"] in page
    for rule in RULES:
        assert rule in text
        assert rule in page
    assert plain["rules"] == list(RULES)
    figure = plain["claims"][0]["parts"][0]["figure"]
    assert figure == {"found": pytest.approx(100.0), "unit": "s", "stated": 120.0}
    assert files["markdown"].count("\n| ") == 22  # a header, a line and twenty claims


def test_names_in_records_are_shown_as_they_are_written(written):
    text, files = written
    assert "<script>window" not in files["html"]
    assert markup.escape(SHOWN) in files["html"]
    assert "\x1b" not in text
    assert "<img" not in files["markdown"]


def test_each_claim_is_reached_from_the_table(written):
    page = written[1]["html"]
    for claim in CLAIMS:
        assert page.count(f'href="#claim-{claim.number}"') == 1
        assert page.count(f'id="claim-{claim.number}"') == 1


def test_a_run_that_is_not_there_is_named():
    with pytest.raises(RequestError, match="--claims needs the workdirs of one run or more"):
        report([])
    with pytest.raises(RequestError, match="cannot read records from nowhere"):
        report([Path("nowhere")])


def test_a_wrong_request_is_one_line(quick_main_py, tmp_path):
    done = quick_main_py("compare", "--claims", "x", "--csv=y")
    assert_refused(done, "--claims judges claims and compares no rows: for --csv run", tmp_path)
