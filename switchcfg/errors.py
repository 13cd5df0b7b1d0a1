"""Everything switchcfg raises on purpose. `code` is a stable token, for JSON output and tests."""

from collections.abc import Sequence


class SwitchcfgError(Exception):
    """Root of all intended errors; catch it at a process edge only."""

    code = "internal"

    @property
    def lines(self) -> tuple[str, ...]:
        """The text, as people read it."""
        return (str(self),)


class BadUsage(SwitchcfgError):
    """What was typed is no command line of switchcfg; `usage` says what would be."""

    code = "bad_usage"

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


class BadIntent(SwitchcfgError):
    """The intent file breaks a rule; the text names file, line and field."""

    code = "bad_intent"


class CannotExpress(SwitchcfgError):
    """A platform cannot do what the intent asks for, not even in a degraded way."""

    code = "cannot_express"


class BadState(SwitchcfgError):
    """What a device says of itself cannot be understood, or is not safe to build on."""

    code = "bad_state"


class Refused(SwitchcfgError):
    """A device would not take, or would silently not do, what the intent wants; nothing is done."""

    code = "refused"

    def __init__(self, title: str, problems: Sequence[str]) -> None:
        self._lines = (title, *(f"  {problem}" for problem in problems))
        super().__init__("\n".join(self._lines))

    @property
    def lines(self) -> tuple[str, ...]:
        return self._lines


class BadPlan(SwitchcfgError):
    """A saved plan is damaged, was edited, or is of another version."""

    code = "bad_plan"


class Moved(SwitchcfgError):
    """A device is no longer what it was when the plan was made; plan anew."""

    code = "moved"


class Unreachable(SwitchcfgError):
    """A device does not answer, or not as it should; the text says what to look at."""

    code = "unreachable"


class Busy(SwitchcfgError):
    """Somebody else's commit is pending on the device."""

    code = "busy"


class CommitFailed(SwitchcfgError):
    """A device refused a step, or did not become what was planned; it was brought back."""

    code = "commit_failed"


class NotKept(SwitchcfgError):
    """What was done to a device cannot be written down here."""

    code = "not_kept"


class NothingPending(SwitchcfgError):
    """There is nothing to confirm or to revert."""

    code = "nothing_pending"
