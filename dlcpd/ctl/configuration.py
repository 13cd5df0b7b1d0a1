"""`dlcpctl config`: checks files, shows the values in use on this host, and explains keys."""

import argparse
import dataclasses
import time
from typing import Any, Final

from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.explain import matching, settings
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.config.effective import resolved, tables_text, to_toml, value_text
from dlcpd.daemon.config.file import load
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.metrics import web_config
from dlcpd.inspection.report import query
from dlcpd.inspection.settings import not_in_force

LOOK: Final = 0.2  # seconds between looks at a daemon that reloads


def check(options: argparse.Namespace, output: Output) -> int:
    """Print a line per file. Exit code 2 at the first that is not valid.

    Raises: BadConfig.
    """
    for file in options.files:
        config = load(file)
        Access.configured(config.daemon.allowed_users, config.daemon.socket_group)
        web_config.load(config.metrics.web_config)
        changed = sum(map(len, differences(config, Config()).values()))
        output.line(f"{file}: valid; {changed} settings are not the default")
    output.document([str(file) for file in options.files])
    return 0


def show(options: argparse.Namespace, output: Output) -> int:
    """Print the values in use, with "auto" resolved on this host; with `--running`, those of the
    running daemon. Raises: BadConfig; as Conversation does."""
    if options.running:
        return _show_running(options, output)
    written = load(options.file) if options.file else Config()
    config = resolved(written)
    if options.changed:
        for table, keys in differences(written, Config()).items():
            output.line(f"[{table}]")
            for key, value in keys.items():
                output.line(f"{key} = {value_text(value)}")
        output.document(differences(written, Config()))
    else:
        output.line(to_toml(config).rstrip("\n"))
        output.document(dataclasses.asdict(config))
    return 0


def _show_running(options: argparse.Namespace, output: Output) -> int:
    if options.file or options.changed:
        raise BadConfig("config show --running takes neither FILE nor --changed: see config diff")
    running = query(options.socket, 0)["config"]
    output.line(tables_text(running).rstrip("\n"))
    output.document(running)
    return 0


def diff(options: argparse.Namespace, output: Output) -> int:
    """Print the settings of a file that the running daemon does not use, after `--wait` seconds if
    there are any before. Exit code 1 if there are any. Raises: BadConfig; as Conversation does."""
    written, until = load(options.file), time.monotonic() + options.wait
    while found := not_in_force(query(options.socket, 0)["config"], written):
        if time.monotonic() >= until:
            break
        time.sleep(LOOK)
    for key, running, written in found:
        output.line(f"{key} = {value_text(written)}    # the daemon uses {value_text(running)}")
    if not found:
        output.line(f"the daemon uses all settings of {options.file}")
    output.document({key: {"file": written, "running": old} for key, old, written in found})
    return 1 if found else 0


def differences(config: Config, from_: Config) -> dict[str, dict[str, Any]]:
    """Keys of `config`, by table, whose values differ from those of `from_`."""
    one, other = dataclasses.asdict(config), dataclasses.asdict(from_)
    found = {
        table: {key: value for key, value in keys.items() if value != other[table][key]}
        for table, keys in one.items()
    }
    return {table: keys for table, keys in found.items() if keys}


def explain(options: argparse.Namespace, output: Output) -> int:
    """Raises: BadConfig for an unknown key."""
    found = matching(options.key) if options.key else list(settings())
    output.line("\n\n".join(setting.text() for setting in found))
    output.document([dataclasses.asdict(setting) for setting in found])
    return 0
