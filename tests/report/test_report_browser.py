"""The report in a real browser: nothing is loaded, tables sort and filter, it fits a phone and it prints."""

import base64
import re

import pytest

import ptanalyze
from captures import HARM, hostile_copy
from ptanalyze.core.errors import bundled

NAME = "$x_{ \x1b[31m\u202e$<b onclick=x>"
DESKTOP, PHONE = (1280, 900), (375, 700)


@pytest.fixture(scope="session")
def page(all_file):
    """URL of a report of captures with odd names, two with system calls, one a VM."""
    return all_file.as_uri()


def opened(browser, page, size=DESKTOP, scripts=True):
    """The browser at the page, when its tables are ready."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(page)
    if scripts:
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
    asked = re.findall(
        r'"url":"([^"]*)"', "".join(entry["message"] for entry in browser.get_log("performance"))
    )
    assert page in asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert {url for url in asked if url.startswith("file")} == {page}


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_every_picture_is_drawn_and_fits(browser, page, size):
    opened(browser, page, size)
    sizes = browser.execute_script("return [...document.images].map(one => [one.complete, one.width])")
    assert len(sizes) > 10 and all(complete and 300 < width <= size[0] for complete, width in sizes)


def test_a_figure_answers_where_the_pointer_is(browser, page):
    from selenium.webdriver import ActionChains

    opened(browser, page)
    spot = browser.find_element("css selector", "#c0-figure-locality i")
    says = "return getComputedStyle(arguments[0], '::after').content"
    assert browser.execute_script(says, spot) == "none"
    ActionChains(browser).move_to_element(spot).perform()
    assert re.search(r"socket \d+: [\d.]+ % \w+", browser.execute_script(says, spot))


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


def test_numbers_sort_by_value_and_what_is_missing_is_least(browser, page, native):
    opened(browser, page)
    shown = lambda: column(browser, "speed-ups", str(native.directory))  # noqa: E731
    (at,) = [k for k, one in enumerate(column(browser, "speed-ups", "Policy")) if one == "vmitosis-replicate"]
    assert shown()[at] == "–"
    values = sorted(float(text) for text in shown() if text != "–")
    for order, wanted in (("descending", values[::-1]), ("ascending", values)):
        cell = header(browser, "speed-ups", "a <script>")
        cell.click()
        until(browser, lambda cell=cell, order=order: cell.get_attribute("aria-sort") == order)
        missing = ["–"] * (len(shown()) - len(values))
        wanted = [f"{value:.2f}" for value in wanted]
        wanted = wanted + missing if order == "descending" else missing + wanted
        until(browser, lambda wanted=wanted: shown() == wanted)


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


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_page_is_never_wider_than_the_screen(browser, page, size):
    opened(browser, page, size)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    wide, screen = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= screen <= size[0]
    cut = browser.execute_script(
        """
        const wide = one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll");
        return [...document.querySelectorAll("main *")].filter(wide).map(one => one.outerHTML.slice(0, 99));
        """
    )
    assert cut == []


def test_on_a_phone_only_tables_of_many_columns_scroll_and_say_so(browser, page):
    opened(browser, page, PHONE)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    scrolling = browser.execute_script(
        """
        const says = one => getComputedStyle(one.querySelector("caption span"), "::after").content;
        const wide = [...document.querySelectorAll(".scroll")].filter(one =>
            one.scrollWidth > one.clientWidth);
        return wide.map(one => [one.querySelectorAll("thead th").length, says(one), one.innerText]);
        """
    )
    assert scrolling
    assert not [text for columns, says, text in scrolling if columns <= 5 or "more columns" not in says]
    spills = "one => one.scrollWidth > one.clientWidth"
    tiles = "[...document.querySelectorAll('.glance .value')]"
    assert browser.execute_script(f"return {tiles}.length && !{tiles}.some({spills})")


def test_what_scrolls_on_a_phone_can_be_reached_by_keys(browser, page):
    opened(browser, page, PHONE)
    unreached = browser.execute_script(
        """
        const scrolls = one => one.scrollWidth > one.clientWidth && one.tabIndex < 0;
        return [...document.querySelectorAll(".scroll")].filter(scrolls).length;
        """
    )
    assert unreached == 0


def test_the_first_key_leads_past_the_contents(browser, page):
    opened(browser, page)
    browser.find_element("tag name", "body").send_keys("\t")
    assert browser.switch_to.active_element.text == "To the text"
    browser.switch_to.active_element.send_keys("\n")
    assert browser.switch_to.active_element.get_attribute("id") == "main"


def test_without_scripts_all_rows_are_there(browser, page):
    opened(browser, page)
    rows = browser.execute_script("return document.querySelectorAll('#c0-policies tbody tr').length")
    opened(browser, page, scripts=False)
    try:
        shown = browser.find_elements("css selector", "#c0-policies tbody tr")
        assert len(shown) == rows > 5 and all(row.is_displayed() for row in shown)
        assert not browser.find_elements("css selector", ".dt-search")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_prints_as_several_pages_of_paper_without_controls(browser, page):
    opened(browser, page)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF") and 8 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 60
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    metrics = {"width": 703, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # A4 within its margins
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        hidden = browser.find_elements(
            "css selector", "nav, .dt-search, .dt-info, details:not([open]) summary"
        )
        assert hidden and not any(one.is_displayed() for one in hidden)
        cut = browser.execute_script(
            """
            const wide = one => one.getBoundingClientRect().right > innerWidth + 1;
            const found = [...document.querySelectorAll("table, img")].filter(wide);
            return found.map(one => one.outerHTML.slice(0, 99));
            """
        )
        assert cut == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_bundled_vms_page_works_too(browser, bundled_vm_file):
    opened(browser, bundled_vm_file.as_uri(), PHONE)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") == PHONE[0]
    assert len(column(browser, "policies", "Policy")) > 10


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
