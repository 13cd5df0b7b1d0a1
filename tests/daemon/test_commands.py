"""Commands of `dlcpd` that other packages bring."""

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.commands import found
from dlcpd.daemon.main import main


@pytest.mark.parametrize("arguments", [[], ["--config", "x"], ["--version"]])
def test_options_are_the_daemons_own(arguments: list[str]) -> None:
    assert found(arguments) is None


def test_the_parameter_server_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(["server"]) is not None
    with pytest.raises(SystemExit) as end:
        main(["server", "--help"])
    assert end.value.code == 0 and "--standby" in capsys.readouterr().out


def test_a_command_that_nobody_brings_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadConfig, match="no command 'serve'; there are: server"):
        found(["serve"])
    assert main(["serve"]) == 2
    assert "no command 'serve'" in capsys.readouterr().err
