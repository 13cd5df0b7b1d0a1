"""Requests to `dlcpctl page` that look right to one reader and wrong to another."""

import pytest

from dlcpd.page.daemon import MAX_STEPS
from tests.checks import Measured
from tests.page.test_server import Answering, get, serving

CHECK = 118
NUMBERS = {
    "leading zeros": ["01", "0019999999", "0000000019999999", f"{'0' * 299}1"],
    "other digits": ["%D9%A3", "%EF%BC%93", "%E0%A5%A9", "%C2%B3", "%E2%91%A2", "1%D9%A0"],
    "300 digits": ["9" * 300, f"1{'0' * 299}"],
    "other spellings": ["%2B3", "-3", "1_0", "3.0", "1e1", "0x3", "%203", "3%20", "3%0A", "3%00"],
    "too many": [str(MAX_STEPS + 1), "9999"],
}
HOSTS = ["0.0.0.0", "0.0.0.0:7480", "[::]", "[::]:7480", "[0:0:0:0:0:0:0:0]", "0", "0:7480", "0x0",
         "[::ffff:0.0.0.0]", "[::ffff:0:0]:7480"]  # fmt: skip


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=list(NUMBERS))
@pytest.mark.check(CHECK, "steps of leading zeros, other digits, 300 digits: 400, none recorded")
def test_a_number_of_another_spelling_records_nothing(
    numbers: list[str], measured: Measured
) -> None:
    with serving(daemon := Answering()) as port:
        for number in numbers:
            assert get(port, f"/trace?steps={number}")[0] == 400, number
        assert not daemon.recorded
        assert get(port, f"/trace?steps={MAX_STEPS}")[0] == 200
        assert daemon.recorded == [MAX_STEPS]
    measured(f"{len(numbers)} refused")


@pytest.mark.check(CHECK, "a Host of 0.0.0.0, in any spelling, is refused")
def test_the_address_of_no_host_is_not_answered(measured: Measured) -> None:
    with serving(daemon := Answering()) as port:
        for host in HOSTS:
            for target in ("/", "/status", "/trace?steps=3"):
                assert get(port, target, Host=host)[0] == 421, host
        assert not daemon.recorded
        assert get(port, "/status", Host="[::ffff:127.0.0.1]:7480")[0] == 200
    measured(f"{len(HOSTS)} spellings refused")
