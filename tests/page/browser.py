"""A real browser without a screen: Debian's chromium and its driver."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PROGRAMS = ("chromium", "chromedriver")
NO_SELENIUM = "browser: selenium (pip install 'dlcpd[dev]') is missing"


def unavailable() -> str:
    """Why there is no browser here; "" where there is one."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{' and '.join(missing)} (make system-deps) missing" if missing else ""


@contextmanager
def browser(*, dark: bool = False, width: int = 1280, height: int = 800) -> Iterator["Chrome"]:
    """It notes what it asks for and what it complains about; see `requests` and `complaints`."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService  # noqa: PLC0415  # a tool

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for word in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-dev-shm-usage",
            f"window-size={width},{height}",
            f"user-data-dir={folder}",
            "disable-background-networking",
            "no-first-run",
            "disable-component-update",
        ):
            options.add_argument(f"--{word}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = ChromeService(
            str(shutil.which("chromedriver")),
            log_output=subprocess.DEVNULL,
            env=os.environ | {"HOME": folder},
        )
        driver = Chrome(options=options, service=service)
        try:
            resized(driver, width, height)
            coloured(driver, dark=dark)
            yield driver
        finally:
            driver.quit()


def resized(driver: Any, width: int, height: int) -> None:
    """Give the page a window of this size, in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def coloured(driver: Any, *, dark: bool) -> None:
    """The colours that the page's user prefers."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def complaints(driver: Any) -> list[str]:
    """Errors and warnings of the console, once."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver: Any) -> list[str]:
    """URLs that were asked for, once."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
