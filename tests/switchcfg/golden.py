"""What every platform makes of every example: `python -m tests.switchcfg.golden` writes it anew.

Read the difference before you commit it: it is what an operator's switches will be told.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.intents import EXAMPLES

FOLDER: Final = Path(__file__).parent / "golden"
# One switch of each platform: the examples but the first have them all.
DEVICES: Final = {each.platform: each for each in parse(EXAMPLES["no_ecn"], "").devices}


def on_every_platform(example: str) -> Intent:
    """An example's intent for one switch of each platform."""
    return replace(parse(EXAMPLES[example], example), devices=tuple(DEVICES.values()))


def rendered(example: str, platform: str) -> str:
    """The configuration, and below it what of the intent it is not."""
    device: Device = DEVICES[platform]
    kind = PLATFORMS[platform]
    try:
        out = kind.render(on_every_platform(example), device)
    except CannotExpress as exc:
        return f"# refused: {exc}\n"
    return kind.write(out.state) + "".join(f"# degraded: {text}\n" for text in out.degraded)


@cache
def taken(platform: str) -> tuple[str, ...]:
    """Examples that a platform does not refuse as a whole."""
    return tuple(each for each in EXAMPLES if not rendered(each, platform).startswith("# refused"))


PAIRS: Final = [(example, platform) for platform in PLATFORMS for example in taken(platform)]


def file(example: str, platform: str) -> Path:
    """Where it is kept."""
    return FOLDER / f"{example}.{platform}.txt"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for example in EXAMPLES:
        for platform in PLATFORMS:
            file(example, platform).write_text(rendered(example, platform), encoding="utf-8")


if __name__ == "__main__":
    main()
