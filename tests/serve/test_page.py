"""The page at / in a real browser: what a person types, sees and teaches, in light, dark and at the width of a phone.

STEEPEST_SCREENSHOTS names a directory for pictures of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from servers import models, start  # noqa: F401

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
    pytest.mark.xdist_group("serve-page"),
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


@pytest.fixture(scope="module")
def browser():
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        driver.set_window_size(1000, 1200)
        yield driver
        driver.quit()


def find(browser, name):
    """An element that the page shows by now."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(
        lambda b: ((found := b.find_element(By.ID, name)).is_displayed() and found) or None
    )


def wait_text(browser, name, part):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 30).until(lambda b: part in find(b, name).text)
    return find(browser, name).text


def shoot(browser, name):
    """A picture of the whole page, if somebody wants to look at it."""
    if place := os.environ.get("STEEPEST_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        metrics = {"width": browser.execute_script("return innerWidth"), "height": height, "deviceScaleFactor": 1}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "mobile": False})
        browser.save_screenshot(str(Path(place) / f"{name}.png"))


def dark(browser, value):
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def narrow(browser, width):
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def open_page(browser, server):
    """The page, with nothing in the browser's log of pages before it."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{server.port}/")


def check_quality(browser):
    """No overflow, every field with a label, headings in order, contrast of text, nothing loaded from elsewhere."""
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    unnamed = """
      return [...document.querySelectorAll('input, textarea, select')]
        .filter(e => e.offsetParent !== null && !(e.labels && e.labels.length)).map(e => e.id)"""
    assert browser.execute_script(unnamed) == []
    contrast = """
      const parse = c => c.match(/[\\d.]+/g).map(Number);
      const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
      const light = c => { const [r, g, b] = parse(c).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
      const back = e => {
        for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor;
          if ((parse(c)[3] ?? 1) > 0) return c;
        }
        return 'rgb(255, 255, 255)';
      };
      const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      return [...document.querySelectorAll('p, label, small, th, td, h1, h2, button, caption, span, a')]
        .filter(e => e.offsetParent !== null && e.textContent.trim())
        .map(e => [ratio(light(getComputedStyle(e).color), light(back(e))), e.outerHTML.slice(0, 90)])
        .filter(([found]) => found < 4.5)"""
    assert browser.execute_script(contrast) == []
    own = browser.execute_script("return location.origin")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith((own, "data:")) for name in loaded), loaded
    assert [
        entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "401" not in entry["message"]
    ] == []


def test_a_text_is_predicted_explained_and_learned(browser, models, start, tmp_path):
    server = start(models["text"], "--learn", "--log", tmp_path / "log", "--token", "T")
    narrow(browser, 1000)
    open_page(browser, server)
    find(browser, "field-review").send_keys("a great superb film with a dull ending")
    find(browser, "predict").click()
    assert find(browser, "label").text == "pos"
    assert wait_text(browser, "shares", "superb")
    found = server.call("/explain", {"row": "a great superb film with a dull ending"})[1]
    totals = find(browser, "totals").text
    assert f"{found['total']:.4f}" in totals
    assert f"{abs(found['bias']):.4f}" in totals
    shares = find(browser, "shares").text
    for feature in found["features"]:
        assert feature["name"] in shares
        assert f"{abs(feature['share']):.4f}" in shares or abs(feature["share"]) < 1e-3
    probabilities = server.call("/predict", {"rows": ["a great superb film with a dull ending"]})[1]["probabilities"][0]
    assert f"{probabilities['pos']:.4f}" in find(browser, "probabilities").text
    find(browser, "truth").send_keys("neg")
    find(browser, "teach").click()
    assert "a token is needed" in find(browser, "error").text
    find(browser, "lesson-token").send_keys("T")
    find(browser, "teach").click()
    wait_text(browser, "taught", "Learned as row 1.")
    wait_text(browser, "lesson-state", "1 rows learned")
    for n in range(12):
        server.call("/learn", {"rows": [f"dull weak film {n}"], "labels": ["neg"]}, "T")
    wait_text(browser, "lesson-state", "13 rows learned")  # live, without a click
    find(browser, "loss-chart")
    check_quality(browser)
    shoot(browser, "text-light")
    dark(browser, "dark")
    check_quality(browser)
    shoot(browser, "text-dark")
    narrow(browser, 390)
    check_quality(browser)
    shoot(browser, "text-phone-dark")
    dark(browser, "light")
    shoot(browser, "text-phone")
    server.kill()


def test_fields_are_the_models_columns_and_a_number_has_a_curve(browser, models, start):
    server = start(models["columns"])
    narrow(browser, 1000)
    open_page(browser, server)
    find(browser, "field-size").send_keys("80")
    find(browser, "field-town").send_keys("Bonn")
    find(browser, "field-town").submit()
    row = {"size": 80, "town": "Bonn"}
    expected = server.call("/predict", {"rows": [row]})[1]["predictions"][0]
    assert find(browser, "label").text == f"{expected:.1f}"
    assert "town=Bonn" in wait_text(browser, "shares", "size")
    chart = find(browser, "curve-chart")
    assert len(chart.find_element("css selector", "polyline").get_attribute("points").split()) == 41
    assert "prediction from" in chart.find_element("css selector", "svg").get_attribute("aria-label")
    check_quality(browser)
    shoot(browser, "columns-light")
    narrow(browser, 390)
    check_quality(browser)
    shoot(browser, "columns-phone")
    field = find(browser, "field-size")
    field.clear()
    field.send_keys("large")
    find(browser, "predict").click()
    assert "give a number" in wait_text(browser, "error", "size")
    server.kill()


def test_words_with_counts_are_one_field(browser, models, start):
    server = start(models["bags"])
    browser.get(f"http://127.0.0.1:{server.port}/")
    find(browser, "field-bag").send_keys("great:2 film")
    find(browser, "predict").click()
    assert wait_text(browser, "label", "pos") == "pos"
    assert "great" in wait_text(browser, "shares", "film")
    assert not browser.find_element("id", "curve").is_displayed()  # there is no column of numbers
    assert not browser.find_element("id", "error").is_displayed()


def test_a_guarded_server_asks_for_its_token_first(browser, models, start):
    server = start(models["sparse"], "--token", "T")
    narrow(browser, 1000)
    open_page(browser, server)
    find(browser, "token").send_keys("T\n")
    find(browser, "field-pairs").send_keys("0:1.5 3:-1")
    find(browser, "predict").click()
    assert find(browser, "label").text in ("0", "1", "2")
    check_quality(browser)
    server.kill()
