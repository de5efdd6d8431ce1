"""The HTML report: what is in it, what is kept out of it, and what a browser makes of it."""

import base64
import dataclasses
import itertools
import json
import os
import re
import shutil
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_compiled_tables import compiled
from test_record import make

from accel_bench import comparison
from accel_bench.compare import ratio_text, value_text
from accel_bench.comparison import Source
from accel_bench.report import html_text, markup, points, style, tables

HOSTILE = "</script><script>window.hit=1</script><!--<b>&amp;\u2028'\"\x1b<img src=x onerror=hit=1>"
SHOWN = HOSTILE.replace("\u2028", "\\u2028").replace("\x1b", "\\x1b")
ENV = {"python": "3", "packages": {"jax": "1"}, "cpu": {"caches": {"L1": 49152, "L2": 2**20}}}


def product(size=64, seconds=1e-3, **fields: Any):
    samples = [seconds * (1 + 0.001 * i) for i in range(-5, 6)]
    facts = {"work": {"flops": 2.0 * size**3, "bytes": 12.0 * size**2}, "error": 1e-6}
    facts |= fields.pop("facts", {})
    plain = {"params": {"shape": str(size)}, "samples_s": samples, "facts": facts, "env": ENV}
    return make(**plain | fields)


def other_workloads():
    work = {"work": {"bytes": 1e6}}
    yield from (
        product(workload="memory", params={"op": op, "bytes": size}, facts=work)
        for op in ("triad", "latency")
        for size in (2**14, 2**18, 2**26)
    )
    params = {"model": "m", "phase": "train_step", "batch": 1, "length": 8}
    yield product(workload="model", params=params)


def program(compiler_s: float | None = 2e-3, **fields: Any):
    """A train step that was compiled, with collectives."""
    entries = [
        {"kind": "all-gather", "axes": ["fsdp"], "bytes": 2e9, "calls": 3, "wire_bytes": 1e9},
        {"kind": "all-reduce", "axes": ["model"], "bytes": None, "calls": 1, "wire_bytes": None},
    ]
    params = {"model": "m", "phase": "train_step", "batch": 1, "length": 8}
    facts = {"collectives": entries, "work": {"flops": 1e12, "tokens": 8}}
    facts["program"] = {"flops": 1e12, "bytes": 1e9}
    seconds: Any = (compiler_s, 1e-3)
    return compiled(seconds, workload="model", params=params, facts=facts, **fields)


def source(letter, records, target="", config=None, problems=()):
    path = Path("/runs") / letter
    return Source(letter, path, target, list(records), list(problems), config)


def two(**fields):
    """Two measured sources and two targets, every plot with something in it."""
    sizes = (64, 128, 256)
    one = [product(n, 1e-3 * n, **fields) for n in sizes] + list(other_workloads())
    other = [product(n, 1e-4 / n, **fields) for n in sizes] + list(other_workloads())
    gpu = {"name": "gpu:h100_sxm:1"}
    return comparison.pair(
        [
            source("A", one, config={"seed": 1}),
            source("B", other, config={"seed": 1}, problems=["a torn line"]),
            source("C", [product_for(64), program()], "tpu:v5e:1x1"),
            source("D", [product_for(64, None, **gpu), program(None, **gpu)], "gpu:h100_sxm:1"),
        ]
    )


def product_for(size, compiler_s: float | None = 1e-6, **fields: Any):
    facts = {"work": {"flops": 2.0 * size**3, "bytes": 12.0 * size**2}}
    seconds: Any = (compiler_s, 1e-6)
    return compiled(seconds, params={"shape": str(size)}, facts=facts, **fields)


def hostile():
    record = product(
        params={"shape": HOSTILE},
        target={"kind": "measured", "platform": "cpu", "device_kind": HOSTILE},
        env=ENV | {"settings": {HOSTILE: HOSTILE}},
        facts={"flags": [HOSTILE]},
    )
    strange = product(workload=HOSTILE, params={HOSTILE: HOSTILE}, implementation=HOSTILE)
    failed = make(status="failed", reason=HOSTILE, samples_s=[], env=ENV)
    step = dataclasses.replace(program(), run_id=HOSTILE, mesh={HOSTILE: 1})
    records = [record, strange, failed, step]
    sources = [
        source(letter, records, config={HOSTILE: HOSTILE}, problems=[HOSTILE]) for letter in "AB"
    ]
    return comparison.pair(sources)


def scripts(text):
    """Plots' data by the plot's name."""
    found = re.findall(r'<script type="application/json" id="(.*?)-data">(.*?)</script>', text)
    return {name: json.loads(data) for name, data in found}


def test_every_section_and_plot_is_there():
    text = html_text(two())
    for title in ("Sources", "Findings", "How to read it", "matmul", "memory", "model",
                  "Provenance"):  # fmt: skip
        assert re.search(rf"<h2[^>]*>{title}</h2>", text), title
    assert set(scripts(text)) == {
        "plot-roofline", "plot-memory", "plot-collectives", "plot-matmul", "plot-accuracy",
        "plot-bandwidth", "plot-latency", "plot-parts",
    }  # fmt: skip
    assert '<html lang="en">' in text
    assert "a torn line" in text
    levels = [int(level) for level in re.findall(r"<h(\d)", text)]
    assert levels[0] == 1
    assert all(later - before <= 1 for before, later in itertools.pairwise(levels))


def test_a_plot_without_data_is_left_out():
    found = comparison.pair([source(letter, [make()]) for letter in "AB"])
    text = html_text(found)
    assert scripts(text) == {}
    assert "Across workloads" not in text


def test_nothing_is_fetched_and_only_known_scripts_run():
    text = html_text(two())
    assert not re.search(r'(?:src|href)="(?!#)', text)
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', text)[1])  # type: ignore
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_numbers_are_those_that_the_terminal_shows():
    found = two()
    text = unescape(html_text(found))
    for row in found.rows:
        for cell in row.cells:
            assert value_text(cell) in text
            assert ratio_text(cell) in text
            if cell and cell.rate:
                assert f'data-v="{cell.rate.value!r}"' in text
    assert found.rows[0].cells[1].claim == "different"  # type: ignore


def test_what_is_not_known_is_no_zero():
    found = two()
    text = html_text(found)
    data = scripts(text)
    assert not [t for t in data["plot-collectives"]["data"] if "model" in t["name"]]
    assert "2 collectives of unknown size are not in the bars." in text
    parts = [t["name"] for t in data["plot-parts"]["data"]]
    assert "network, at least" not in parts  # 0 of one device has no place on a log axis
    assert all(0 not in t["x"] for plot in data.values() for t in plot["data"])


def test_estimates_and_bounds_are_marked_wherever_they_are_shown():
    found = two()
    data = scripts(html_text(found))
    for plot in ("plot-roofline", "plot-matmul"):
        for trace in data[plot]["data"]:
            texts = trace["hovertext"]
            if trace["mode"] == "lines+text":
                continue
            symbol, (number,) = trace["marker"]["symbol"], trace["meta"]["s"]
            if number < 2:
                assert "open" not in symbol
                assert all("<br>measured" in text for text in texts)
            else:
                assert "open" in symbol
                assert all("not run" in text for text in texts)
            if number == 3:
                assert symbol.startswith("triangle")
                assert all("&lt;= " in text and "a bound" in text for text in texts)


def test_every_axis_is_named():
    for plot in scripts(html_text(two())).values():
        for name in ("xaxis", "yaxis"):
            assert plot["layout"][name]["title"]["text"]


def test_hostile_strings_are_escaped_everywhere():
    text = html_text(hostile())
    assert "<script>window" not in text
    assert "<img" not in text
    assert "<!--" not in text
    assert "\x1b" not in text
    assert "\u2028" not in text
    assert markup.escape(SHOWN) in text
    # Three kinds of data and two programs, and nothing that a record opened.
    assert text.count("<script") == text.count("</script") == len(scripts(text)) + 3
    for plot in scripts(text).values():
        for trace in plot["data"]:
            assert not re.search(r"<(?!br>)", " ".join([trace["name"], *trace["hovertext"]]))


@pytest.mark.parametrize("text", ["a" * 10_000, "\ud800", "\u202e", "\0", "<" * 9000])
def test_text_is_clipped_and_can_be_seen(text):
    shown = markup.visible(text)
    assert len(shown) < 2000
    assert all(c.isprintable() for c in shown)
    shown.encode()


def many(count):
    return comparison.pair(
        [
            source(letter, [product(64 + i, scale * (1 + i)) for i in range(count)])
            for letter, scale in (("A", 1e-3), ("B", 2e-3))
        ]
    )


def test_a_long_comparison_is_cut_and_says_so():
    text = html_text(many(2500))
    assert len(text.encode()) < 8e6
    shown = re.search(r"The first (\d+) of 2500 rows are shown", text)
    assert shown
    assert int(shown[1]) <= tables.MAX_ROWS
    assert "--csv=FILE" in text
    assert all(len(t["x"]) <= 801 for p in scripts(text).values() for t in p["data"])


def test_thinning_keeps_the_ends():
    assert points.thin(range(1000), 5)[::4] == [0, 999]
    assert points.thin([1, 2], 5) == [1, 2]


def test_configs_and_environments_are_shown_once_and_others_noted():
    load = {"cpu": {"load_at_start": 2.0, "caches": ENV["cpu"]["caches"]}}
    odd = product(99, env=ENV | {"packages": {"jax": "2"}})
    records = [product(64), product(65, env=ENV | load), product(66), odd]
    config = {"seed": 7}
    found = comparison.pair([source(n, records, config=config) for n in "AB"])
    text = html_text(found)
    assert text.count("Config (A, B)") == 1
    assert "Environment 2 (A, B)" in text
    assert "Environment 3" not in text
    assert "matmul 99 fp32 in environment 2, its other rows in environment 1" in text
    assert "packages: jax ≠" in text


def test_sources_are_told_apart_by_more_than_colour():
    looks = {(n % style.COLORS, style.symbol(n, "measured")) for n in range(points.MAX_SOURCES)}
    assert len(looks) == points.MAX_SOURCES


# --- in a browser ---


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome")
    chrome = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not chrome or not driver:
        pytest.skip("no Chromium with its chromedriver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chrome
    flags = ["--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]  # fmt: skip
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files of reports, each made once."""
    folder = tmp_path_factory.mktemp("pages")
    made = {"two": two(), "hostile": hostile(), "many": many(2000)}
    for name, found in made.items():
        (folder / f"{name}.html").write_text(html_text(found), encoding="utf-8")
    return folder


@pytest.fixture
def opened(browser, pages):
    """Opens a page at a width and in a theme; nothing may be logged as an error meanwhile."""

    def show(name, width=1280, theme="light", media=""):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        emulate(browser, theme, media)
        browser.get((pages / f"{name}.html").as_uri())
        return browser

    yield show
    assert browser.get_log("browser") == []


def emulate(browser, theme="light", media=""):
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def wait(browser, script, *arguments):
    """What a script returns, as soon as it is true."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if found := browser.execute_script(f"return {script}", *arguments):
            return found
        time.sleep(0.05)
    raise AssertionError(f"never true: {script}")


def plot(browser, name):
    """Scrolls to a plot and waits until it is drawn."""
    wait(browser, "window.Plotly !== undefined")
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", name)
    wait(browser, f"document.querySelector('#{name} .main-svg') !== null")
    return f"document.getElementById('{name}')"


def column(browser, number):
    """Texts of a column of the first sortable table."""
    return browser.execute_script(
        "return [...document.querySelector('table.sortable').tBodies[0].rows]"
        ".map(row => row.cells[arguments[0]].textContent)",
        number,
    )


def test_columns_sort_by_click_and_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    browser = opened("two")
    heads = browser.find_elements("css selector", "table.sortable th button")
    first = column(browser, 0)
    assert first == ["64", "128", "256"]
    header = heads[0].find_element("xpath", "..")
    heads[0].click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(browser, 0) == ["64", "128", "256"]  # as numbers, not as text
    heads[0].send_keys(Keys.ENTER)
    assert header.get_attribute("aria-sort") == "descending"
    assert column(browser, 0) == ["256", "128", "64"]
    heads[0].send_keys(Keys.SPACE)
    assert header.get_attribute("aria-sort") is None
    assert column(browser, 0) == first
    heads[2].click()  # rates of A, which fall with the size but not as text
    values = browser.execute_script(
        "return [...document.querySelectorAll('table.sortable')[0].tBodies[0].rows]"
        ".map(row => Number(row.cells[2].dataset.v))"
    )
    assert values == sorted(values)
    assert "Sorted by A, ascending." in browser.find_element("id", "said").get_attribute(
        "textContent"
    )


def test_unknown_figures_sort_last_both_ways(opened):
    browser = opened("two")
    names = [b.text for b in browser.find_elements("css selector", "table.sortable th button")]
    number = names.index("C")  # which has one of the three rows
    button = browser.find_elements("css selector", "table.sortable th button")[number]
    for _ in range(2):
        button.click()
        assert column(browser, number)[1:] == ["-", "-"]


def test_a_source_is_hidden_in_tables_and_plots(opened):
    browser = opened("two")
    where = plot(browser, "plot-matmul")
    shown = f"{where}.data.filter(t => t.visible).map(t => t.meta.s[0])"
    assert 1 in browser.execute_script(f"return {shown}")
    cells = browser.find_elements("css selector", "table.sortable .s1")
    assert any(cell.is_displayed() for cell in cells)
    box = browser.find_element("css selector", "input[data-source='1']")
    box.click()
    wait(browser, f"!{shown}.includes(1)")
    assert not any(cell.is_displayed() for cell in cells)
    box.click()
    wait(browser, f"{shown}.includes(1)")
    assert any(cell.is_displayed() for cell in cells)


def test_a_tooltip_says_what_the_table_says(opened):
    from selenium.webdriver import ActionChains

    browser = opened("two")
    plot(browser, "plot-matmul")
    point = browser.find_elements("css selector", "#plot-matmul .point")[0]
    ActionChains(browser).move_to_element(point).perform()
    texts = "[...document.querySelectorAll('.hovertext')].map(t => t.textContent).join()"
    text = wait(browser, texts)
    assert "A: matmul 64 fp32" in text
    assert "measured" in text
    assert column(browser, 2)[0] in text


def test_light_and_dark_differ_and_plots_follow(opened):
    browser = opened("two", theme="light")
    where = plot(browser, "plot-matmul")
    looks = []
    for theme in ("light", "dark"):
        emulate(browser, theme)
        wanted = (style.LIGHT if theme == "light" else style.DARK)["paper"]
        wait(browser, f"{where}.layout.paper_bgcolor === '{wanted}'")
        looks.append(
            browser.execute_script("return getComputedStyle(document.documentElement).background")
        )
    assert looks[0] != looks[1]


@pytest.mark.parametrize(("name", "width"), [("two", 320), ("two", 360), ("hostile", 360)])
def test_a_phone_scrolls_tables_and_not_the_page(opened, name, width):
    browser = opened(name, width=width)
    for figure in scripts((Path(browser.current_url[7:])).read_text(encoding="utf-8")):
        plot(browser, figure)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    if name == "two":
        assert browser.execute_script(
            "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > "
            "e.clientWidth && getComputedStyle(e).overflowX === 'auto')"
        )


def test_print_shows_every_plot_and_no_controls(opened):
    browser = opened("two", theme="dark")
    wait(browser, "window.Plotly !== undefined")
    emulate(browser, "dark", media="print")
    everything = "[...document.querySelectorAll('.plot')]"
    wait(browser, f"{everything}.every(p => p.querySelector('.main-svg'))")
    white = style.LIGHT["paper"]
    wait(browser, f"{everything}.every(p => p.layout.paper_bgcolor === '{white}')")
    assert not browser.find_element("id", "sources-shown").is_displayed()
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")


def test_hostile_strings_show_as_they_are_and_run_nothing(opened):
    browser = opened("hostile")
    for name in ("plot-roofline", "plot-matmul", "plot-accuracy"):
        where = plot(browser, name)
        browser.execute_script(f"Plotly.Fx.hover({where}, [{{curveNumber: 0, pointNumber: 0}}])")
    assert browser.execute_script("return window.hit") is None
    assert SHOWN in browser.execute_script("return document.body.textContent")
    last = "[...document.querySelectorAll('#plot-accuracy .hovertext')].map(t => t.textContent)"
    assert SHOWN in wait(browser, f"{last}.join()")
    assert browser.execute_script(
        "return document.querySelectorAll('img, main script').length"
    ) == (
        browser.execute_script("return document.querySelectorAll('main script[id$=-data]').length")
    )


@pytest.mark.alone
def test_two_thousand_rows_open(opened, capsys):
    began = time.monotonic()
    browser = opened("many")
    from selenium.webdriver.support.ui import WebDriverWait

    count = "return document.querySelector('table.sortable').rows.length"
    # On a busy machine the page may still be read when the browser first answers.
    WebDriverWait(browser, 20).until(lambda page: page.execute_script(count) == 2001)
    took = time.monotonic() - began
    with capsys.disabled():
        print(f"\n2,000 rows opened in {took:.2f} s")


def test_headings_links_and_controls_work_without_a_pointer(opened):
    from selenium.webdriver.common.keys import Keys

    browser = opened("two")
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    active = browser.switch_to.active_element
    assert active.text == "Skip to the content"
    assert active.is_displayed()
    width = browser.execute_script("return getComputedStyle(document.activeElement).outlineWidth")
    assert width != "0px"
    active.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    missing = browser.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')]"
        ".filter(a => !document.querySelector(a.getAttribute('href'))).length"
    )
    assert missing == 0


def test_links_and_plots_work_in_a_notebooks_frame(browser, tmp_path):
    from accel_bench.notebook import Report

    page = tmp_path / "frame.html"
    page.write_text(f"<!DOCTYPE html><body>{Report(html_text(two()))._repr_html_()}")
    emulate(browser)
    browser.get(page.as_uri())
    browser.switch_to.frame(browser.find_element("tag name", "iframe"))
    browser.find_element("link text", "Across workloads").click()
    wait(browser, "scrollY > 0 && !!document.querySelector('.main-svg')")
    assert browser.execute_script("return location.href") == "about:srcdoc"
    with pytest.raises(Exception, match="(?i)blocked|cross-origin"):
        browser.execute_script("return parent.document.title")
    browser.switch_to.default_content()
