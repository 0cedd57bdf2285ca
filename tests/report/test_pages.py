"""Reports in a real browser: offline, light, dark and as narrow as a phone, with every part that was promised.

STEEPEST_SCREENSHOTS names a directory for pictures of them.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import steepest as st
from steepest.cli import main
from steepest.report.live import serve_live
from steepest.report.page import Matrix, Section, page
from steepest.report.training import _learned, loss_charts

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One page of every verb that writes one."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    size, colour = rng.uniform(0, 10, 600), rng.choice(["red", "green <b>", "blue"], 600)
    label = np.where(np.abs(size - 5) + (colour == "red") + rng.normal(0, 0.7, 600) > 3, "far", "near")
    lines = [f"{s:.3f},{c},{k}" for s, c, k in zip(size, colour, label, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["size,colour,label", *lines]) + "\n")
    rows, model = str(folder / "rows.csv"), str(folder / "m.steepest")
    quiet = ["--quiet"]
    commands = {
        "train": ["train", rows, "-m", model, "--holdout", "0.3", *quiet],
        "evaluate": ["evaluate", model, rows],
        "cv": ["cv", rows, "--folds", "3"],
        "tune": ["tune", rows, "--trials", "3", "--budget", "20", *quiet],
        "race": ["race", rows, "--solvers", "sgd,lbfgs", "--seconds", "0.2", "--alpha", "1e-3", *quiet],
    }
    found = {}
    for name, command in commands.items():
        found[name] = folder / f"{name}.html"
        assert main([*command, "--report", str(found[name])]) == 0
    return found


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        yield driver
        driver.quit()


PARTS = {
    "train": ("Losses", "On held-out rows", "Confusion", "ROC", "Reliability", "Thresholds", "Top features", "Data"),
    "evaluate": ("Metrics", "Confusion", "ROC", "Precision and recall", "Reliability", "Numeric columns"),
    "cv": ("Folds", "mean accuracy"),
    "tune": ("Metrics by parameter", "Trials", "is the best: steepest train"),
    "race": ("By time", "Solvers", "first within 1 % of the optimum"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_page_has_its_parts_and_needs_nothing_else(pages, name):
    text = pages[name].read_text()
    for part in (*PARTS[name], f"steepest {name} ", "versions: steepest", "date: 20"):
        assert part in text, part
    assert not re.search(r"<script|https?://|<link|<img|@import|url\(", text)
    assert "green <b>" not in text
    assert all('aria-label="' in svg for svg in re.findall(r"<svg class=chart[^>]*>", text))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", PARTS)
def test_a_page_fits_the_screen_and_can_be_read(pages, browser, name, width, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(pages[name].as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    colours = browser.execute_script("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
    text, ground = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert abs(text - ground) > 500
    assert (ground > text) == (scheme == "light")
    clipped = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart')].filter(svg => {"
        " const b = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].some(t => { const r = t.getBoundingClientRect();"
        " return r.left < b.left - 1 || r.right > b.right + 1 || r.top < b.top - 1 || r.bottom > b.bottom + 1 })"
        "}).map(svg => svg.getAttribute('aria-label'))"
    )
    assert clipped == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    if place := os.environ.get("STEEPEST_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": height})
        browser.save_screenshot(str(Path(place) / f"{name}-{scheme}-{width}.png"))


def test_the_page_of_a_running_training_follows_it(capsys):
    with serve_live("m.steepest", "steepest train ...") as live:
        assert live.address.startswith("http://127.0.0.1:")

        def page(path=""):
            with urllib.request.urlopen(live.address + path, timeout=10) as answer:
                return answer.read().decode()

        assert "epochs done" in page()
        rows = st.from_arrays(np.eye(4), [0, 1, 0, 1])
        st.LinearClassifier(solver="sgd", epochs=3, random_state=0).fit_stream(rows, monitor=live)
        text = page()
        assert "3 of 3" in text
        assert "http-equiv=refresh" in text
        with pytest.raises(urllib.error.HTTPError):
            page("other")
        foreign = urllib.request.Request(live.address, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(foreign, timeout=10)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(live.address, timeout=10)


def test_watch_prints_the_address(tmp_path, capsys):
    (tmp_path / "rows.svm").write_text("1 1:1\n-1 2:1\n" * 30)
    assert main(["train", str(tmp_path / "rows.svm"), "-m", str(tmp_path / "m"), "--watch"]) == 0
    assert "steepest: live report at http://127.0.0.1:" in capsys.readouterr().err


def test_a_notebook_shows_parameters_losses_and_weights():
    model = st.LinearClassifier(solver="sgd", random_state=0)
    assert "parameters" in model._repr_html_()
    assert "<svg" not in model._repr_html_()
    html = model.fit(["fine <b> day", "bad day"] * 20, ["good", "bad"] * 20)._repr_html_()
    assert "<svg" in html
    assert "top features for good" in html
    assert "fine <b>" not in html


def test_a_notebook_names_the_clusters_whose_coordinates_it_shows():
    rows = np.array([[0.0, 3.0], [0.0, 4.0], [5.0, 0.0], [6.0, 0.0]])
    html = st.KMeans(2, random_state=0).fit(rows)._repr_html_()
    assert all(f"top features of cluster {number}" in html for number in (0, 1))


def test_pages_of_many_classes_stay_short_and_name_them_upright():
    classes = [f"class {number}" for number in range(8)]
    rows = [[float(a == b) * 9 for b in range(8)] for a in range(8)]
    matrix = page("m", {}, [Section("c", [Matrix("Confusion", classes, rows)])], {})
    assert "class='matrix many'" in matrix
    assert matrix.count("<td></td>") == 56  # zeros are left out
    words = [(f"word{number}", 1.0) for number in range(20)]
    top = dict.fromkeys(classes, words)
    facts = {"model": "m", "events": [], "history": [], "classes": classes, "top": top, "against": top}
    assert len(_learned(facts)[0].parts[0].pairs) == 16


def test_an_objective_that_lies_on_another_line_is_not_drawn():
    history = [
        {"loss": 1.5, "holdout_loss": 1.2, "objective": 1.203},
        {"loss": 0.1, "holdout_loss": 1.0, "objective": 1.004},
    ]
    assert [line.name for line in loss_charts(history)[0].lines] == ["training rows", "held-out rows"]
