"""Exceptions that switchcfg raises. `code` is a stable token, for JSON output and tests."""

from collections.abc import Sequence


class SwitchcfgError(Exception):
    """Base class of all errors of switchcfg; catch it at a process edge only."""

    code = "internal"

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, line by line, for output to a terminal."""
        return (str(self),)


class BadUsage(SwitchcfgError):
    """The command line is invalid; `usage` shows the valid form."""

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
    """A device's configuration cannot be parsed, or is not safe to plan from."""

    code = "bad_state"


class Refused(SwitchcfgError):
    """A device would refuse or silently ignore part of the intent; nothing is changed."""

    code = "refused"

    def __init__(self, title: str, problems: Sequence[str], shown: Sequence[str] = ()) -> None:
        """`shown`: the problems in the text, if not all."""
        self.problems = tuple(problems)
        self._lines = (title, *(f"  {line}" for line in shown or problems))
        super().__init__("\n".join(self._lines))

    @property
    def lines(self) -> tuple[str, ...]:
        return self._lines


class BadPlan(SwitchcfgError):
    """A saved plan is damaged, was edited, or is of another version."""

    code = "bad_plan"


class Moved(SwitchcfgError):
    """A device's configuration changed since the plan was made; plan again."""

    code = "moved"


class Unreachable(SwitchcfgError):
    """A device does not answer, or answers wrongly; the text says what to look at."""

    code = "unreachable"


class Busy(SwitchcfgError):
    """Another commit is pending on the device."""

    code = "busy"


class CommitFailed(SwitchcfgError):
    """A device refused a step, or its state differs from the plan; the change was rolled back."""

    code = "commit_failed"


class Interrupted(SwitchcfgError):
    """The user stopped the work on a device."""

    code = "interrupted"


class NotKept(SwitchcfgError):
    """The record of a change to a device cannot be written on this machine."""

    code = "not_kept"


class NothingPending(SwitchcfgError):
    """There is nothing to confirm or to revert."""

    code = "nothing_pending"
