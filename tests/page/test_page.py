"""The status page in a real browser, in front of real daemons and a training."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.daemon.kit import PATIENCE, Daemon, configuration
from tests.page.browser import NO_SELENIUM, coloured, complaints, requests, resized
from tests.page.conftest import HOST, JOB, Site
from tests.page.site import Page, status, steps

pytest.importorskip("selenium", reason=NO_SELENIUM)
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.timeout(300)

SIZES = ((1280, 800), (390, 844))  # pixels: a laptop's window, a phone's
CARDS = 600  # narrower windows show rows of tables as cards
FITS = "return document.documentElement.scrollWidth <= innerWidth"
# Faults of the tables of a page. Rows are cards in a narrow window: then each cell is whole
# and in the window, and begins with its column's name, if that has one.
TABLES = (
    f"const cards = innerWidth < {CARDS};"
    + """
const wrong = [];
for (const table of document.querySelectorAll("main table.cards")) {
  if (!table.checkVisibility()) continue;
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  if (table.tHead.checkVisibility() === cards) wrong.push(`heads of ${heads}`);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => {
    const name = getComputedStyle(cell, "::before").content;
    const expected = cards && heads[at] ? JSON.stringify(heads[at]) : "none";
    if (name !== expected) wrong.push(`${name} is not ${expected}`);
    const box = cell.getBoundingClientRect();
    if (cards && (box.left < 0 || box.right > innerWidth || cell.scrollWidth > cell.clientWidth))
      wrong.push(`${heads[at]}: ${cell.textContent}`);
  });
}
const scrolls = (one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1;
wrong.push(...[...document.querySelectorAll(cards ? "main .body, main .label" : "main .body")]
  .filter(scrolls).map((one) => `wide: ${one.textContent.slice(0, 60)}`));
return wrong;
"""
)


def until(chrome: "Chrome", true: Callable[[], Any]) -> Any:
    return WebDriverWait(chrome, PATIENCE, 0.1).until(lambda _: true())


def text(chrome: "Chrome", where: str) -> str:
    """What is shown there."""
    found: str = chrome.find_element(By.CSS_SELECTOR, where).text
    return found


def cells(chrome: "Chrome", where: str) -> list[list[str]]:
    """The rows of a table's body."""
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    found: list[list[str]] = chrome.execute_script(script, where)
    return found


def opened(chrome: "Chrome", page: Page, fragment: str = "") -> None:
    chrome.get("about:blank")  # else a fragment alone would load nothing
    chrome.get(page.url.split("#")[0] + fragment)


@pytest.mark.check(1, "cells and rows of the page are what dlcpctl status --json says")
def test_the_page_shows_what_status_says(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    Select(chrome.find_element(By.CSS_SELECTOR, "#heat select")).select_by_value("loss")
    report = status(site.socket)
    [engine] = report["engine"]["sessions"].values()
    [session] = report["sessions"]
    paths = engine["peers"][0]["paths"]
    assert len(paths) == 2 and all(path["lost"] for path in paths)
    expected = [f"{100 * path['lost'] / path['sent']:.2f} %" for path in paths]

    def shown() -> bool:
        [row] = cells(chrome, "#heat")
        assert row[0] == HOST
        return [cell.split("\n")[0] for cell in row[2:]] == expected

    until(chrome, shown)
    [row] = cells(chrome, "#sessions")
    assert row[:3] == [JOB, "0", "2"] and session["job"].startswith(JOB)
    assert row[3] == "open" and row[6:8] == [str(engine["submitted"]), "0"]
    totals = engine["totals"]
    assert row[8] == str(totals["waived"]) and totals["waived"] > 0
    assert row[9].startswith(f"{100 * totals['used']:.3g}"[:3])
    said = text(chrome, "#bound .body")
    assert f"{totals['waived']:,} segments waived of {totals['allowed']:,} allowed" in said
    sent = sum(space["sent"] for path in paths for space in path["classes"].values())
    assert f"{sent:,}" in [row[1] for row in cells(chrome, "#classes")]
    assert {row[0] for row in cells(chrome, "#tensors")} <= {
        "head.weight",
        "block3.weight",
        "block2.weight",
        "block1.weight",
    }


@pytest.mark.check(2, "the page asks its own server alone, and complains of nothing")
def test_nothing_is_asked_of_others(site: Site, chrome: "Chrome") -> None:
    complaints(chrome), requests(chrome)  # those of other tests
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    asked = [urlsplit(url) for url in requests(chrome)]
    ours = {url.netloc for url in asked if url.scheme not in ("data", "blob", "chrome", "about")}
    assert ours == {urlsplit(site.page.url).netloc}
    assert {url.path for url in asked} >= {"/", "/page.js", "/uplot.js", "/status"}
    assert complaints(chrome) == []


@pytest.mark.check(3, "names of jobs and hosts that are HTML are shown, and do nothing")
def test_hostile_names_are_text(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    assert JOB in text(chrome, "#sessions") and JOB in text(chrome, "#alarms")
    assert HOST in text(chrome, "#heat")
    for tag in ("img", "b > i", "[onerror]"):
        assert chrome.find_elements(By.CSS_SELECTOR, f"main {tag}") == []
    assert chrome.title.endswith("alpha - dlcpd")
    script = "return document.documentElement.innerHTML.includes('&lt;img src=x')"
    assert chrome.execute_script(script)


@pytest.mark.check(4, "what a path loses too much of is an alarm, and a cell that says so")
def test_alarms_are_those_of_top(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: "PATH" in text(chrome, "#alarms"))
    [row] = cells(chrome, "#heat")
    assert row[2].endswith("gray: loses too much")
    assert chrome.find_elements(By.CSS_SELECTOR, "#heat td.gray")
    assert chrome.execute_script("return inRuns([9, 3, 10, 8])") == "3, 8-10"
    many = [f"PATH: path {number} is down" for number in range(500)]
    chrome.execute_script("showAlarms(arguments[0], {sessions: []})", [*many, "LATE: rank 7"])
    lines = text(chrome, "#alarms .body").split("\n")
    assert lines[:2] == ["LATE", "rank 7"] and lines[-1].startswith("and 493 more;")


@pytest.mark.check(5, "charts have a point for each look at a training that runs")
def test_charts_follow_a_training(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    script = "return [...page.history.values()][0].columns"
    steps(site.ranks, 5)
    found = until(chrome, lambda: (c := chrome.execute_script(script))[1][1:] and c)
    times, lost, waived, allowed, bits, _ = found
    assert times == sorted(times) and lost[0] is None  # a rate needs two looks
    assert allowed[1] is not None and 0 <= waived[1] <= allowed[1] and bits[1] > 0
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".uplot canvas")) == 2


@pytest.mark.check(6, "steps that are recorded show as lanes, with what operations waited for")
def test_a_recording_is_a_timeline(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    chrome.find_element(By.ID, "record").click()
    until(chrome, lambda: "recording" in text(chrome, "#recorded"))
    while "recording" in text(chrome, "#recorded"):
        steps(site.ranks, 2)
    assert text(chrome, "#recorded").startswith("3 steps, recorded at")
    labels = [e.text.split()[0] for e in chrome.find_elements(By.CSS_SELECTOR, ".lanes .label")]
    assert labels == ["head.weight", "block3.weight", "block2.weight", "block1.weight"]
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".lanes .axis span")) == 3
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".lanes i.exchange")) == 12
    assert str(chrome.find_element(By.ID, "save").get_attribute("href")).startswith("blob:")


@pytest.mark.check(7, "a rank that does not come is named, with its host and what waits for it")
def test_who_is_late_is_named(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    site.ranks[0].begin(1)
    until(chrome, lambda: cells(chrome, "#late"))
    [[_, late, host, *_, awaiting]] = cells(chrome, "#late")
    assert (late, host) == ("rank 1", HOST) and awaiting
    assert "LATE" in text(chrome, "#alarms") and chrome.title.startswith("(")
    site.ranks[1].begin(1)
    assert [rank.says() for rank in site.ranks] == ["done", "done"]
    until(chrome, lambda: not cells(chrome, "#late"))


@pytest.mark.check(15, "one page shows the ranks of a job on all its hosts, and which is missing")
def test_a_job_over_its_hosts(site: Site, chrome: "Chrome") -> None:
    of = ["--job", JOB, "--of", site.sockets[0], "--of"]
    with Page(site.sockets[0], "--listen", "127.0.0.1:0", *of, site.sockets[1]) as page:
        opened(chrome, page)
        until(chrome, lambda: cells(chrome, "#sessions"))
        assert [row[1:3] for row in cells(chrome, "#sessions")] == [["alpha", "0"], [HOST, "1"]]
        assert text(chrome, "#host") == JOB and text(chrome, "#state") == "2 of 2 hosts answer"
        assert {row[0] for row in cells(chrome, "#heat")} == {"alpha", HOST}
        assert chrome.find_element(By.ID, "traffic").is_displayed()
        assert not chrome.find_element(By.ID, "steps").is_displayed()
        assert "NOT SHOWN" not in text(chrome, "#alarms")
    with Page(site.sockets[0], "--listen", "127.0.0.1:0", *of, "/nowhere.sock") as page:
        opened(chrome, page)
        until(chrome, lambda: cells(chrome, "#sessions"))
        assert text(chrome, "#state") == "1 of 2 hosts answer"
        assert "/nowhere.sock: no daemon answers" in text(chrome, "#alarms")
        assert f"rank 1 on {HOST}" in text(chrome, "#alarms")


@pytest.mark.check(8, "beyond loopback a browser needs the token, and takes it from the URL")
def test_beyond_loopback_a_token_is_needed(site: Site, chrome: "Chrome") -> None:
    with Page(site.socket, "--listen", "0.0.0.0:0") as page:
        url, token = page.url.split("#token=")
        assert urlsplit(url).hostname == socket.gethostname().lower() and len(token) == 32
        page.url = url.replace(str(urlsplit(url).hostname), "127.0.0.1")
        chrome.execute_script("sessionStorage.clear()")
        opened(chrome, page)
        until(chrome, lambda: chrome.find_element(By.ID, "token").is_displayed())
        assert cells(chrome, "#sessions") == [] and "alpha" not in text(chrome, "body")
        chrome.find_element(By.CSS_SELECTOR, "#token input").send_keys(token)
        chrome.find_element(By.CSS_SELECTOR, "#token button").click()
        until(chrome, lambda: cells(chrome, "#sessions"))
        assert not chrome.find_element(By.ID, "token").is_displayed()
        chrome.execute_script("sessionStorage.clear()")
        opened(chrome, page, f"#token={token}")
        until(chrome, lambda: cells(chrome, "#sessions"))
        assert token not in chrome.current_url


@pytest.mark.check(
    9, "a daemon that ends is said and waited for; without sessions it says what to do"
)
def test_a_daemon_that_ends_is_waited_for(chrome: "Chrome", tmp_path: Path) -> None:
    config = configuration(tmp_path)
    where = config.with_suffix(".sock")
    with Page(str(where), "--listen", "127.0.0.1:0") as page:
        opened(chrome, page)
        until(chrome, lambda: "no daemon answers" in text(chrome, "#notice"))
        for mode in ("", "obedient"):  # the real engine; one that starts faster
            with Daemon(config, mode=mode):
                until(chrome, lambda: not chrome.find_element(By.ID, "notice").is_displayed())
                assert f"DLCPD_SOCKET={where}" in text(chrome, "#sessions")
                assert mode or "no session" in text(chrome, "#alarms")
            until(chrome, lambda: "What is shown is of" in text(chrome, "#notice"))
        assert page.end() == 0
        until(chrome, lambda: "dlcpctl page does not answer" in text(chrome, "#notice"))


@pytest.mark.check(10, "nothing is wider than a narrow window or cut off in it, dark or light")
def test_it_fits_a_narrow_window(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    back = []
    for (width, height), dark in zip(SIZES, (False, True), strict=True):
        resized(chrome, width, height)
        coloured(chrome, dark=dark)
        until(chrome, lambda: chrome.execute_script(FITS))
        until(chrome, lambda: chrome.execute_script(TABLES) == [])
        back.append(chrome.execute_script("return getComputedStyle(document.body).backgroundColor"))
    resized(chrome, *SIZES[0])
    coloured(chrome, dark=False)
    assert back[0] != back[1]


@pytest.mark.check(13, "screen readers get what charts show, and alarms when their kinds change")
def test_charts_and_alarms_have_text(site: Site, chrome: "Chrome") -> None:
    opened(chrome, site.page)
    until(chrome, lambda: cells(chrome, "#sessions"))
    steps(site.ranks, 5)
    script = "return [...document.querySelectorAll('canvas[role=img]')].map(c => c.ariaLabel)"
    bound, sent = until(
        chrome, lambda: (found := chrome.execute_script(script)) and "%, at" in found[0] and found
    )
    assert bound.startswith("Loss against bound: lost by the network from ")
    assert sent.startswith("Sent to peers: Mbit/s from ")
    told = chrome.find_element(By.ID, "told")
    assert told.get_attribute("role") == "status" and told.aria_role == "status"
    assert "PATH" in str(told.get_attribute("textContent"))
    changes = (
        "const told = document.querySelector('#told'); let count = 0;"
        "new MutationObserver((all) => count += all.length).observe(told, {childList: true});"
        "const say = (lines) => { tellAlarms(lines); return told.textContent; };"
        "const texts = [say(['LATE: a', 'LATE: b']), say(['LATE: c', 'LATE: d']), say([])];"
        "return Promise.resolve().then(() => [texts, count]);"
    )
    texts, count = chrome.execute_script(changes)
    assert texts == ["alarms: 2 LATE", "alarms: 2 LATE", "no alarms"] and count == 2
