"""Command lines whose errors name what is wrong, and the option that was meant."""

import argparse
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """An unknown argument is an error of the command that it was given to, not of the whole: its
    usage is what the reader needs. No abbreviations: they break when options are added."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """As in argparse, but all arguments must be known."""
        found, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            self.error(self._complaint(unknown))
        return found, unknown

    def _complaint(self, unknown: Sequence[str]) -> str:
        import difflib  # noqa: PLC0415  # only after a mistake: probes import little

        given = next((word for word in unknown if word.startswith("-")), unknown[0])
        text = f"unrecognized arguments: {' '.join(unknown)}"
        if not given.startswith("--"):
            return text
        known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(given[2:].partition("=")[0], known, 3)
        hint = (
            f"did you mean {' or '.join(f'--{name}' for name in near)}?"
            if near
            else f"{self.prog} --help lists all"
        )
        return f"{text}; {hint}"
