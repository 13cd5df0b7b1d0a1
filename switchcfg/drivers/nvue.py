"""Driver for Cumulus Linux with NVUE's command `nv`, over SSH. Needs the extra `ssh` (asyncssh).

NVUE reverts a revision that is applied with `--confirm` unless it is confirmed, so the revert does
not depend on switchcfg. The revision's message holds `who` and the deadline, so other hosts can
read both from the switch.

Login: see `switchcfg.drivers.ssh`. Sources: Cumulus Linux 5.9 and 5.11, "NVUE CLI"
(`apply --confirm`, `-m`, `detach`, auto save); NVUE reference, "Config Commands" (`config
revision`). `--confirm-yes`, `--confirm-no`, seconds as `90s` and the state `confirm` of a revision
are undocumented; NAPALM's community driver for Cumulus and NVIDIA's own tests of NVOS use them.
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from switchcfg.drivers.driver import Commit, Pending, Target, busy
from switchcfg.drivers.ssh import Remote
from switchcfg.errors import Busy, CommitFailed, NothingPending, Unreachable
from switchcfg.plan.masking import masked
from switchcfg.platforms.platform import Step

TIMEOUT: Final = 600.0  # seconds for one script: each `nv set` is a separate request
OLDEST: Final = (5, 9)
OURS: Final = "switchcfg"  # the first word of a revision's message
_MESSAGE: Final = re.compile(rf"{OURS} until (\d+): (.*)")
_VERSION: Final = re.compile(r"version:\s*['\"]?Cumulus Linux (\d+)\.(\d+)\S*")
REVISIONS: Final = "date +%s\nnv config revision -o json\n"
TYPING: Final = "another switchcfg is working on this device: try again later"
UNREADY: Final = (
    "the login user has changes that are not applied: `nv config diff` shows them, `nv config "
    "detach` puts them aside"
)
_DIFF: Final = "--"  # a line; the output of `nv config diff` follows it
# `detach` keeps the candidate as a revision, which not every release can delete.
_PUT_ASIDE: Final = """\
put_aside() {
    revision=$(nv config detach 2>/dev/null | sed -n 's/.*rev_id: *\\([0-9][0-9]*\\).*/\\1/p')
    [ -z "$revision" ] || nv config delete "$revision" >/dev/null 2>&1 || :
}
"""


class NvueDriver:
    """One switch, over one connection."""

    def __init__(self, device: str, address: str, *, config: Path | None) -> None:
        """`config` is read instead of ~/.ssh/config."""
        self.device, self.address = device, address
        self._remote = Remote(device, address, config=config, timeout=TIMEOUT)

    @classmethod
    def of(cls, target: Target) -> Self:
        return cls(target.name, target.address, config=target.ssh_config)

    async def get(self) -> str:
        return await self._nv("config", "show", "-o", "commands")

    async def ask(self, question: str) -> str:
        return await self._remote.run(f"{question}\n")

    async def diff(self, steps: Sequence[Step]) -> str | None:
        return (await self._typed(steps, "nv config diff\n")).strip("\n")

    async def commit(self, commit: Commit) -> str | None:
        then = f"""\
{"diff=$(nv config diff)" if commit.diff else "diff="}
ends=$(($(date +%s) + {commit.seconds}))
nv config apply --confirm {commit.seconds}s -y -m "{OURS} until $ends: "{shlex.quote(commit.who)}
trap - EXIT
printf '\\n{_DIFF}\\n%s\\n' "$diff"
"""
        said, _, diff = (await self._typed(commit.steps, then)).rpartition(f"\n{_DIFF}\n")
        # Declined, invalid or empty changes: not all of these have a nonzero exit code.
        if (await self._mine()) is None:
            await self._remote.run(f"{_PUT_ASIDE}put_aside\n")
            raise CommitFailed(f"{self.device}: the device did not apply the change: {_last(said)}")
        return diff.strip("\n") if commit.diff else None

    async def _typed(self, steps: Sequence[Step], then: str) -> str:
        """The output of the script `then`, run with the steps in the candidate."""
        if (found := await self._unconfirmed()) is not None:
            raise busy(self.device, found[1].who)
        said = await self._remote.run(_typing(steps, then))
        if said.strip() in {TYPING, UNREADY}:
            raise Busy(f"{self.device}: {said.strip()}")
        return said

    async def confirm(self) -> None:
        await self._end("--confirm-yes")

    async def abort(self) -> None:
        await self._end("--confirm-no")

    async def _end(self, how: str) -> None:
        revision = await self._mine()
        if revision is None:
            raise NothingPending(
                f"{self.device}: no change of switchcfg is pending, or the device has reverted it"
            )
        try:
            said = await self._nv("config", "apply", revision, how, "-y")
        except CommitFailed as exc:
            if (await self._mine()) is None:
                raise NothingPending(
                    f"{self.device}: the device has reverted the change ({exc})"
                ) from exc
            raise
        if (await self._mine()) is not None:
            raise CommitFailed(f"{self.device}: the change is still pending: {_last(said)}")

    async def save(self) -> str:
        await self._nv("config", "save")
        return ""

    async def pending(self) -> Pending | None:
        found = await self._unconfirmed()
        return found[1] if found is not None else None

    async def examine(self) -> Sequence[str]:
        try:
            said = await self._nv("config", "show")
            await self._unconfirmed()
        except CommitFailed as exc:
            return [f"the command `nv` fails: {exc}"]
        found = _VERSION.search(said)
        if found is None:
            return ["`nv config show` names no version of Cumulus Linux"]
        if (int(found[1]), int(found[2])) < OLDEST:
            return [
                (
                    f"Cumulus Linux {found[1]}.{found[2]} is too old: switchcfg needs "
                    f"{'.'.join(map(str, OLDEST))} or later"
                )
            ]
        return []

    async def close(self) -> None:
        await self._remote.close()

    async def _mine(self) -> str | None:
        """The unconfirmed revision of switchcfg, from any host; None: there is none."""
        found = await self._unconfirmed()
        return found[0] if found is not None and found[2] else None

    async def _unconfirmed(self) -> tuple[str, Pending, bool] | None:
        """(revision, its commit, whether switchcfg made it) of the unconfirmed revision."""
        now, _, rest = (await self._remote.run(REVISIONS)).partition("\n")
        try:
            revisions = json.loads(rest)
            waiting = [name for name, one in revisions.items() if one.get("state") == "confirm"]
        except (ValueError, AttributeError) as exc:
            raise Unreachable(
                f"{self.device}: the output of `nv config revision` is not JSON: {exc}"
            ) from exc
        for name in waiting:
            for text in _texts(revisions[name], "message"):
                if found := _MESSAGE.fullmatch(text):
                    return name, Pending(found[2], float(found[1]) - float(now)), True
            who = next(_texts(revisions[name], "user"), "an unknown user")
            return name, Pending(f"revision {name} of {who}", -1), False
        return None

    async def _nv(self, *words: str) -> str:
        return await self._remote.run(f"nv {shlex.join(words)}\n")


def _typing(steps: Sequence[Step], then: str) -> str:
    """A script that runs the steps' commands, then `then`. A refused command ends it and discards
    the candidate. A lost connection may end it, too; if not, the applied changes revert.

    All commands of a user share one candidate, so only one switchcfg may run at a time. The lock is
    on the file of `nv`, so no lock file remains.
    """
    lines = (line.strip() for step in steps for line in step.payload.splitlines())
    typed = "\n".join(_quoted(line) for line in lines if line)
    return f"""\
exec 9<"$(command -v nv)"
flock -n 9 || {{ echo '{TYPING}'; exit 0; }}
unready=$(nv config diff)
[ -z "$unready" ] || {{ echo '{UNREADY}'; exit 0; }}
{_PUT_ASIDE}trap put_aside EXIT
{{
{typed}
}} >&2
{then}"""


def _quoted(line: str) -> str:
    """A command of a plan, quoted for a shell. Raises: CommitFailed for any other command."""
    words = line.split()
    if words[:2] not in (["nv", "set"], ["nv", "unset"]):
        raise CommitFailed(f"{line!r}: a plan for NVUE has `nv set` and `nv unset` only")
    return shlex.join(words)


def _last(said: str) -> str:
    return masked(said.strip().rpartition("\n")[2]) or "without output"


def _texts(tree: Any, name: str) -> Iterator[str]:
    """Every text of that name at any depth: releases nest a revision's fields differently."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name and isinstance(value, str):
                yield value
            yield from _texts(value, name)
