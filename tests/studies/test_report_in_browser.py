"""The HTML page in a real browser: what a reader sees, and that nothing leaves the machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saved_comparison import saved_comparison

from rlsim.studies.report.page import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install 'rlsim[browser]'")
waits = pytest.importorskip("selenium.webdriver.support.wait")
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
DRIVER = shutil.which("chromedriver") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="no Chromium with chromedriver (Debian: chromium-driver)"),
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PICTURES = """return [...document.images].map(image => {
    image.closest('details')?.setAttribute('open', '');
    const box = image.getBoundingClientRect();
    return [image.naturalWidth, box.width, box.height];
})"""
WIDER_THAN_THE_SCREEN = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(saved_comparison(tmp_path_factory.mktemp("report"))[0])


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def requests_of(browser: Any) -> list[str]:
    """Addresses that the page asked for, without those that hold their own content."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    asked = [params["request"]["url"] for params in sent if params["documentURL"].startswith("file:")]
    return [url for url in asked if not url.startswith("data:")]


def test_figures_are_seen_and_nothing_is_asked_for_or_complained_of(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    pictures = browser.execute_script(PICTURES)
    assert len(pictures) == 14
    assert all(natural >= 1000 and width > 100 and height > 50 for natural, width, height in pictures), pictures
    assert browser.get_log("browser") == []
    assert requests_of(browser) == [page.as_uri()]
    assert browser.title.startswith("Name </pre><script>"), "a hostile name is a title, and ran nothing"


@pytest.mark.parametrize("width", [375, 768, 1400])
def test_it_fits_the_screen_of_a_phone(browser: Any, page: Path, width: int) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    browser.execute_script(PICTURES)
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.execute_script(WIDER_THAN_THE_SCREEN) <= 0


def test_what_is_folded_is_printed(browser: Any, page: Path) -> None:
    seen = "return document.querySelector('#scenario pre').checkVisibility({contentVisibilityAuto: true})"
    browser.get(page.as_uri())
    assert not browser.execute_script(seen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert waits.WebDriverWait(browser, 10).until(lambda shown: shown.execute_script(seen)), "once it is laid out again"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(browser: Any, page: Path, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(page.as_uri())
    script = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    ink, paper = (_luminance(colour) for colour in browser.execute_script(script))
    assert (ink > paper) == (scheme == "dark")
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7, "WCAG 2.2, 1.4.6"


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of ``rgb(r, g, b)``."""
    parts = [int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_page_that_asks_or_complains_would_be_noticed(browser: Any, page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    open_page = text.replace('http-equiv="Content-Security-Policy"', "").replace(
        "<main>", '<main><img src="http://127.0.0.1:9/x.png">'
    )
    guarded = text.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png"><script>1</script>')
    asked = {}
    for name, changed in (("open", open_page), ("guarded", guarded)):
        path = tmp_path / f"{name}.html"
        path.write_text(changed, encoding="utf-8")
        browser.get(path.as_uri())
        assert min(natural for natural, *_ in browser.execute_script(PICTURES)) == 0
        assert browser.get_log("browser")
        asked[name] = requests_of(browser)
    assert any("127.0.0.1" in url for url in asked["open"])
