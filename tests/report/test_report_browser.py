"""The report in a real browser: nothing is loaded, tables sort and filter, it fits its window."""

import re

import pytest

import ptanalyze
from captures import HARM, hostile_copy
from ptanalyze.core.errors import bundled
from ptanalyze.show.style import SIZE as POINTS

NAME = "$x_{ \x1b[31m\u202e$<b onclick=x>"
SIZE = (1280, 900)


@pytest.fixture(scope="session")
def page(all_file):
    """URL of a report of captures with odd names, two with system calls, one a VM."""
    return all_file.as_uri()


def opened(browser, page):
    """The browser at the page, when its tables are ready."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.set_window_size(*SIZE)
    browser.get(page)
    ready = "return document.documentElement.dataset.tables === 'ready'"
    until(browser, lambda: browser.execute_script(ready))
    return browser


def until(browser, condition):
    """The library works after the event: wait until it is done; TimeoutException if it never is."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10, 0.05).until(lambda _: condition())


def column(browser, table, name):
    """Texts of a table's column as they are shown now."""
    return browser.execute_script(
        """
        const table = document.getElementById(arguments[0]);
        const at = [...table.tHead.rows[0].cells].findIndex(cell => cell.innerText.startsWith(arguments[1]));
        return [...table.tBodies[0].rows].map(row => row.cells[at] ? row.cells[at].innerText : row.innerText);
        """,
        table,
        name,
    )


def header(browser, table, name):
    return browser.find_element("xpath", f"//table[@id='{table}']/thead//th[contains(., '{name}')]")


def test_it_runs_without_errors_and_asks_for_nothing(browser, page):
    opened(browser, page)
    assert browser.get_log("browser") == []
    messages = "".join(entry["message"] for entry in browser.get_log("performance"))
    asked = re.findall(r'"url":"([^"]*)"', messages)
    assert page in asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert {url for url in asked if url.startswith("file")} == {page}


def test_a_click_or_a_key_on_a_heading_sorts(browser, page):
    opened(browser, page)
    given = column(browser, "c0-policies", "Policy")
    cell = header(browser, "c0-policies", "Cycles")
    cycles = lambda: [float(text) for text in column(browser, "c0-policies", "Cycles")]  # noqa: E731
    cell.click()
    until(browser, lambda: cell.get_attribute("aria-sort") == "descending")
    until(browser, lambda: cycles() == sorted(cycles(), reverse=True))
    cell.find_element("css selector", "[role=button]").send_keys("\n")
    until(browser, lambda: cell.get_attribute("aria-sort") == "ascending")
    until(browser, lambda: cycles() == sorted(cycles()))
    header(browser, "c0-policies", "Policy").click()
    until(browser, lambda: column(browser, "c0-policies", "Policy") == sorted(given))


def test_the_filter_keeps_rows_with_the_words(browser, page):
    opened(browser, page)
    shown = lambda: column(browser, "c0-policies", "Policy")  # noqa: E731
    wanted = [name for name in shown() if "hydra" in name]
    label = browser.find_element("css selector", "#c0-policies_wrapper .dt-search label")
    field = browser.find_element("id", label.get_attribute("for"))
    field.send_keys("hydra")
    until(browser, lambda: shown() == wanted != [])
    field.send_keys(" nowhere")
    until(browser, lambda: shown() == ["No row has these words."])


def test_the_page_is_never_wider_than_the_screen(browser, page):
    opened(browser, page)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    widths = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    wide, screen = browser.execute_script(widths)
    assert wide <= screen <= SIZE[0]
    cut = browser.execute_script(
        """
        const wide = one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll");
        return [...document.querySelectorAll("main *")].filter(wide).map(one => one.outerHTML.slice(0, 99));
        """
    )
    assert cut == []


def test_hostile_names_are_text_and_nothing_else(browser, tmp_path):
    capture = hostile_copy(bundled("samples") / "sysbench-memory", tmp_path / NAME)
    file = tmp_path / "page.html"
    ptanalyze.report(capture, file)
    opened(browser, file.as_uri())
    assert browser.get_log("browser") == [], "nothing that the content security policy refused"
    shown, title = browser.execute_script("return [document.documentElement.innerText, document.title]")
    assert not HARM & set(shown + title) and r"\u202e" in shown and r"\x1b[31m" in title
    handlers = "return [...document.querySelectorAll('*')].flatMap(one => [...one.attributes])"
    names = browser.execute_script(handlers + ".map(one => one.name).filter(name => name.startsWith('on'))")
    assert names == []
    foreign = "return [...document.scripts].filter(one => one.text.includes('alert(1)')).length"
    assert browser.execute_script(foreign) == 0


# The first screen: the verdict, then pictures; on a phone nothing stands before the verdict.

FIRST_SCREEN, PHONE = (1280, 800), (390, 844)
BOTTOMS = "return [...document.querySelectorAll(arguments[0])].map(one => one.getBoundingClientRect().bottom)"
BROKEN = """
const lines = one => new Set([...one.getClientRects()].map(box => Math.round(box.top))).size;
return [...document.querySelectorAll(arguments[0])].flatMap(place => {
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), broken = [];
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^ \\n]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (lines(range) > 1) broken.push(word[0]);
    }
  }
  return broken;
});
"""


@pytest.fixture(scope="module", params=["embeddings", "lookup", "vm-numa-visible"])
def sample_page(request, tmp_path_factory):
    file = tmp_path_factory.mktemp("sample") / "page.html"
    ptanalyze.report(request.param, file)
    return file.as_uri()


def seen(browser, page, size):
    """The browser at the page, in a window whose inside has this size."""
    opened(browser, page)
    how = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", how)
    return browser


@pytest.fixture
def windows(browser):
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_first_screen_has_the_verdict_the_gains_and_where_walks_go(windows, sample_page):
    seen(windows, sample_page, FIRST_SCREEN)
    (verdict,), pictures = (windows.execute_script(BOTTOMS, of) for of in (".verdict", ".opening img"))
    assert len(pictures) == 2 and 0 < verdict < min(pictures) <= max(pictures) <= FIRST_SCREEN[1]
    sources = "return [...document.querySelectorAll('.opening figure')].map(one => one.id)"
    assert windows.execute_script(sources) == ["figure-speedup", "figure-reads"]


def test_on_a_phone_the_verdict_is_first_and_no_word_of_it_is_broken(windows, sample_page):
    seen(windows, sample_page, PHONE)
    bottoms = {of: windows.execute_script(BOTTOMS, of)[0] for of in (".verdict", ".opening figure", "nav")}
    assert list(bottoms.values()) == sorted(bottoms.values()) and bottoms[".verdict"] < PHONE[1]
    assert windows.execute_script(BROKEN, ".verdict, .evidence > p") == []
    assert windows.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    cut = "filter(one => one.scrollWidth > one.clientWidth).length"
    assert not windows.execute_script(f"return [...document.querySelectorAll('.opening .scroll')].{cut}")


@pytest.mark.parametrize("size", [FIRST_SCREEN, PHONE])
def test_texts_of_plots_are_at_least_eleven_pixels_high(windows, sample_page, size):
    seen(windows, sample_page, size)
    drawn = "one => one.getBoundingClientRect().width / one.getAttribute('width')"
    shown = "[...document.querySelectorAll('figure img')].filter(one => one.offsetParent)"
    scales = windows.execute_script(f"return {shown}.map({drawn})")
    assert len(scales) > 2 and min(scales) * POINTS * 96 / 72 >= 11
