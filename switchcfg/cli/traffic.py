"""Tests how the network treats traffic between two hosts: `verify --traffic`, `apply --traffic`."""

import argparse
import asyncio
from dataclasses import asdict

from switchcfg.cli.output import put, put_json
from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Intent
from switchcfg.traffic.judge import Verdict, lines


def test(intent: Intent, options: argparse.Namespace) -> bool:
    """Print how the network treats each code point. True: the verdict passes.

    Raises: CannotExpress, Unreachable, CommitFailed.
    """
    found = asyncio.run(verdict(intent, options))
    if options.json:
        put_json({**asdict(found), "passes": found.passes})
    else:
        for line in lines(found):
            put(line)
    return found.passes


async def verdict(intent: Intent, options: argparse.Namespace) -> Verdict:
    """How the network between two hosts treats each code point. Raises: as `test`."""
    try:
        from switchcfg.drivers import probing  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise CannotExpress(f"{exc}; `pip install 'dlcpd[ssh]'`") from exc
    sender, receiver, address = options.traffic
    between = probing.Between(sender, receiver, address, options.load)
    return await probing.verdict(intent.classes, between, config=options.ssh_config)
