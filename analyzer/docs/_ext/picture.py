"""README's picture: the first screen of a report in the browser, light and dark (`make picture`)."""

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

import ptanalyze

BROWSER, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
SIZE = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
COLOURS = 128
MOST = 800  # pixels of height
SCREEN = """
for (const text of document.querySelectorAll(".opening figcaption, .opening details")) text.hidden = true;
const head = document.querySelector("h1").getBoundingClientRect();
const images = [...document.querySelectorAll(".opening img")];
const bottom = Math.max(...images.map(one => one.getBoundingClientRect().bottom));
const opening = document.querySelector(".opening").getBoundingClientRect();
const y = head.top - 16;
return {x: opening.left, y, width: opening.width, height: bottom - y + 16};
"""


def pictures(page, place):
    """Write report-light.png and report-dark.png of an HTML file."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        for scheme in ("light", "dark"):
            prefers = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": prefers})
            browser.get(Path(page).resolve().as_uri())
            part = browser.execute_script(SCREEN)
            clip = {**part, "height": min(part["height"], MOST), "scale": 1}
            how = {"format": "png", "clip": clip, "captureBeyondViewport": True}
            shot = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", how)["data"])
            small = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS)
            small.save(Path(place) / f"report-{scheme}.png", optimize=True)
    finally:
        browser.quit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        ptanalyze.report("embeddings", Path(made) / "embeddings.html")
        pictures(Path(made) / "embeddings.html", sys.argv[1])
