"""A setting is one row: the file, the engines, `dlcpctl config` and the checks know it at once."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT

TIMEOUT = 60.0  # seconds
LAST_ROW = "    # seconds of silence after which a peer is lost;"
ROW = """\
    # datagrams that the example setting counts; default: an example needs few
    example: int = integer(1, 16, 4)
"""
USER = """
import sys
from dlcpd.ctl import explain
from dlcpd.daemon.config.effective import engine_configs, resolved
from dlcpd.daemon.config.file import load
from dlcpd.daemon.main import main
from pathlib import Path

for name in ("right", "wrong", "unknown"):
    print(main(["--check-config", f"{sys.argv[1]}/{name}.toml"]), flush=True)
config = resolved(load(Path(sys.argv[1], "right.toml")))
print([engine.example for engine in engine_configs(config)])
[found] = explain.matching("network.example")
print(found.text())
"""


def test_one_row_adds_a_setting(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "dlcpd", tmp_path / "dlcpd", ignore=shutil.ignore_patterns("__pycache__")
    )
    settings = tmp_path / "dlcpd/io/settings.py"
    text = settings.read_text()
    assert text.count(LAST_ROW) == 1
    settings.write_text(text.replace(LAST_ROW, ROW + LAST_ROW))
    for name, line in (
        ("right", "example = 7"),
        ("wrong", "example = 17"),
        ("unknown", "exampl = 7"),
    ):
        (tmp_path / f"{name}.toml").write_text(f"[network]\nengines = 2\n{line}\n")
    (tmp_path / "user_of_settings.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "dlcpd/starter.py"), "user_of_settings", tmp_path],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed, refused = done.stdout, done.stderr.splitlines()
    assert "\nexample = 7\n" in printed
    assert "\n0\n2\n2\n[7, 7]\n" in printed  # exit codes, then the value of both engines
    assert printed.endswith(
        "[network] example = 4\n"
        "  allowed: integer 1..16\n"
        "  datagrams that the example setting counts\n"
        "  an example needs few\n"
    )
    assert refused == [
        f"dlcpd: {tmp_path}/wrong.toml: [network] example: 17 is outside 1..16",
        f"dlcpd: {tmp_path}/unknown.toml: unknown key exampl in [network]; did you mean example?",
    ]
