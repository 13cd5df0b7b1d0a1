"""The pictures of docs/page.md: `python -m tests.page.screenshots FOLDER`.

A training under 1 % loss on two hosts with two paths, whose rank 1 does not come to the last step;
and a report of another one.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dlcp_lab.ranks.hosts import running
from dlcpd.ctl.main import main as dlcpctl
from tests.daemon.kit import environment
from tests.page.browser import browser, unavailable
from tests.page.site import Page, plans, training

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

STEPS = 400  # some twenty seconds
WIDTH = 1280
COLOURS = 128
TRAINING = Path(__file__).with_name("ddp.py")


def picture(driver: "Chrome", file: Path, *, dark: bool = False) -> None:
    """The whole page, as high as it is."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
    )
    for height in (800, driver.execute_script("return document.documentElement.scrollHeight")):
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        time.sleep(0.5)
    driver.save_screenshot(str(file))
    with Image.open(file) as image:  # with few colours it has half the bytes, and looks the same
        few = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        few.save(file, optimize=True)
    print(f"{file}: {file.stat().st_size // 1000} kB")


def of_page(folder: Path, driver: "Chrome") -> None:
    """The status page, light and dark; somebody is late in the second."""
    with running(plans("alpha", "beta")) as hosts:
        sockets = [host.socket for host in hosts.members]
        with (
            training("resnet", *sockets) as ranks,
            Page(sockets[0], "--listen", "127.0.0.1:0") as page,
        ):
            driver.get(page.url)
            for rank in ranks:
                rank.begin(STEPS)
            time.sleep(12)
            driver.find_element("id", "record").click()
            time.sleep(4)
            picture(driver, folder / "page.png")
            ranks[0].begin(1)
            assert [rank.says() for rank in ranks] == ["done", "done"]
            time.sleep(5)
            picture(driver, folder / "page-late.png", dark=True)


def of_report(folder: Path, driver: "Chrome") -> None:
    """A training with DDP, bounded and under loss."""
    with tempfile.TemporaryDirectory() as made:
        config, file, report = (Path(made, name) for name in ("c.toml", "m.jsonl", "report.html"))
        config.write_text('[daemon]\nhost = "alpha"\n[inject]\nloss = 0.005\nseed = 3\n')
        words = ("torch.distributed.run", "--nproc-per-node", "2", str(TRAINING), str(config))
        subprocess.run(
            [sys.executable, "-m", *words, str(file)],
            check=True,
            timeout=300,
            env=environment() | {"DLCPD_SHARE": "0"},
        )
        dlcpctl(["report", str(file), "-o", str(report)])
        driver.get(f"file://{report}")
        picture(driver, folder / "report.png")


if __name__ == "__main__":
    if reason := unavailable():
        sys.exit(f"browser: {reason}")
    to = Path(sys.argv[1])
    to.mkdir(exist_ok=True)
    with browser() as chrome:
        of_page(to, chrome)
        of_report(to, chrome)
