"""One browser, two hosts and a training with a hostile name, for all tests of this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dlcp_lab.ranks.hosts import running
from tests.page.browser import browser, unavailable
from tests.page.site import Page, Rank, plans, steps, training

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

JOB = "<img src=x onerror=document.title='owned'>"
HOST = "<b>beta<i>"


@pytest.fixture(scope="session")
def chrome() -> Iterator["Chrome"]:
    if reason := unavailable():
        pytest.skip(f"browser: {reason}")
    with browser() as driver:
        yield driver


@dataclass
class Site:
    """Rank 0 is on the host that the page is of; `sockets`: of both."""

    sockets: list[str]
    ranks: list[Rank]
    page: Page

    @property
    def socket(self) -> str:
        """Of the first host."""
        return self.sockets[0]


@pytest.fixture(scope="session")
def site(chrome: "Chrome") -> Iterator[Site]:
    with running(plans("alpha", HOST)) as hosts:
        sockets = [host.socket for host in hosts.members]
        with training(JOB, *sockets) as ranks, Page(sockets[0], "--listen", "127.0.0.1:0") as page:
            steps(ranks, 40)
            yield Site(sockets, ranks, page)
