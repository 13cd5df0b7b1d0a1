"""`switchcfg ports --before --after`: what two configurations treat differently by code point."""

import argparse
from dataclasses import asdict

from switchcfg.cli.output import put, put_json
from switchcfg.errors import BadState
from switchcfg.model.known import model_of
from switchcfg.model.values import SwitchModel, differences, grouped
from switchcfg.platforms.known import PLATFORMS


def model(platform: str, text: str, name: str) -> SwitchModel:
    """The model of a configuration; `name`: of its file, for errors. Raises: BadState."""
    try:
        PLATFORMS[platform].read(text)  # refuses the text of another platform
        return model_of(platform, text)
    except BadState as exc:
        raise BadState(f"{name}: {exc}") from exc


def put_differences(before: SwitchModel, after: SwitchModel, options: argparse.Namespace) -> bool:
    """Print the differences of two models; whether there are any."""
    found = [*differences(before, after)]
    if options.json:
        put_json({"differences": [asdict(each) for each in found]})
    else:
        for line in grouped(found):
            put(line)
    return bool(found)
