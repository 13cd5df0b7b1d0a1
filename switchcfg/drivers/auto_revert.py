"""Auto-revert scripts for any device with a POSIX shell. Pure: generates scripts only.

The device itself waits and restores, so the revert does not depend on switchcfg or the network. A
folder per device in /run is lock and state; a reboot clears it, as it clears tc and nft. Renaming
`armed` decides between timer, confirm and abort: rename(2) succeeds once.
"""

import shlex
from dataclasses import dataclass
from typing import Final

from switchcfg.drivers.driver import busy
from switchcfg.errors import Busy, CommitFailed, NothingPending, SwitchcfgError
from switchcfg.plan.masking import masked

FOLDER: Final = "/run/switchcfg"
BUSY, DISARMED, NONE, RESTORING, RUNNING = 75, 76, 77, 78, 79  # exit codes of scripts below
STEP_ENDS: Final = 30  # seconds that the restore waits for a running step before it kills it
# A step and a restore that overlap would leave a partial configuration: both hold the same lock.
_RESTORE: Final = f"""\
exec 9>"$dir/lock"
if ! flock -w {STEP_ENDS} 9; then
    step=$(cat "$dir/step")
    kill -s KILL -- "-$step" 2>/dev/null || kill -9 "$step" 2>/dev/null || :
fi
sh -eu "$dir/restore"
"""
# A step that may cut the SSH connection: it continues without one and stores its exit code.
_LONG: Final = f"""\
dir=$0
exec 9>"$dir/lock" >"$dir/said" 2>&1
flock 9
echo $$ >"$dir/step"
code={DISARMED}
if [ -e "$dir/armed" ]; then
    sh -eu "$dir/long" && code=0 || code=1
fi
echo "$code" >"$dir/ended.part"
mv "$dir/ended.part" "$dir/ended"
"""
_TIMER: Final = f"""\
dir=$0
sleep "$1"
mv "$dir/armed" "$dir/fired" 2>/dev/null || exit 0
exec >"$dir/log" 2>&1
set -e
{_RESTORE}rm -rf "$dir"
"""
# The process id may have been reused: check the command line. The timer leads its session.
_ALIVE: Final = """\
timer=$(cat "$dir/timer" 2>/dev/null || :)
alive() {
    [ -n "$timer" ] && tr '\\0' ' ' <"/proc/$timer/cmdline" 2>/dev/null | grep -qF "$dir"
}
"""
_STOP: Final = 'if alive; then kill -- "-$timer" 2>/dev/null || :; fi\n'


@dataclass(frozen=True, slots=True)
class AutoRevert:
    """The scripts for one device."""

    device: str
    folder: str = FOLDER  # on the host that runs the timer: the device, or the one that applies

    def arm(self, restore: str, seconds: int, who: str) -> str:
        """Takes the lock and starts the timer (seconds). Exit code BUSY: another commit has the
        lock; prints its `who`."""
        return f"""\
{self._here}umask 077
mkdir -p {shlex.quote(self.folder)}
if ! mkdir "$dir" 2>/dev/null; then
    cat "$dir/who" 2>/dev/null || echo 'an unknown commit'
    exit {BUSY}
fi
{_file("restore", restore)}echo {shlex.quote(who)} >"$dir/who"
echo $(($(date +%s) + {seconds})) >"$dir/until"
: >"$dir/armed"
setsid sh -c {shlex.quote(_TIMER)} "$dir" {seconds} </dev/null >/dev/null 2>&1 &
echo $! >"$dir/timer"
"""

    def step(self, payload: str) -> str:
        """Runs one step while the timer runs. Exit code DISARMED: the timer no longer runs."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
exec 9>"$dir/lock"
flock 9
[ -e "$dir/armed" ] || exit {DISARMED}
echo $$ >"$dir/step"
{payload}"""

    def begin(self, payload: str) -> str:
        """Starts a step that continues if the connection is lost; `ended` asks for its end. The
        step may use the folder of its own file, $0."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
rm -f "$dir/ended"
{_file("long", payload)}setsid sh -c {shlex.quote(_LONG)} "$dir" </dev/null >/dev/null 2>&1 9>&- &
"""

    def ended(self) -> str:
        """Asks for the step that `begin` started. Exit code RUNNING: it has not ended; DISARMED:
        the timer no longer runs; else the step's own, with its output."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
[ -e "$dir/ended" ] || exit {RUNNING}
cat "$dir/said"
exit "$(cat "$dir/ended")"
"""

    def confirm(self) -> str:
        """Keeps the changes. Exit code NONE: no commit was pending."""
        return f"""\
{self._here}mv "$dir/armed" "$dir/confirmed" 2>/dev/null || exit {NONE}
{_ALIVE}{_STOP}rm -rf "$dir"
"""

    def abort(self) -> str:
        """Restores now, or again if the timer's restore failed. Exit code NONE: there is nothing
        to restore; RESTORING: the timer is restoring; else that of the restore script."""
        return f"""\
{self._here}{_ALIVE}[ -d "$dir" ] || exit {NONE}
if ! mv "$dir/armed" "$dir/fired" 2>/dev/null; then
    if alive; then exit {RESTORING}; fi
    if [ ! -e "$dir/fired" ]; then
        rm -rf "$dir"  # not armed: no step was done, or all were confirmed
        exit {NONE}
    fi
fi
{_STOP}{_RESTORE}rm -rf "$dir"
"""

    def pending(self) -> str:
        """Prints `who`, then the seconds left, then the log of a failed restore. No output: no
        commit is pending."""
        return f"""\
{self._here}[ -d "$dir" ] || exit 0
cat "$dir/who" 2>/dev/null || echo 'an unknown commit'
now=$(date +%s)
echo $(($(cat "$dir/until" 2>/dev/null || echo "$now") - now))
cat "$dir/log" 2>/dev/null || :
"""

    @property
    def _here(self) -> str:
        return f"dir={shlex.quote(f'{self.folder}/{self.device}')}\n"


def _file(name: str, text: str) -> str:
    """Script lines that write a file of the folder."""
    end = "END"
    while end in text:  # a delimiter inside the text would end it early and run the rest
        end += "D"
    return f"""cat >"$dir/{name}" <<'{end}'\n{text}{end}\n"""


def refusal(device: str, code: int, said: str) -> SwitchcfgError:
    """The error for a nonzero exit code of these scripts; `said` is their output."""
    text = said.strip()
    if code == BUSY:
        return busy(device, text)
    if code == DISARMED:
        return CommitFailed(
            f"{device}: the device reverted the change before the last step: time ran out, give "
            "a longer --revert-after"
        )
    if code == NONE:
        return NothingPending(
            f"{device}: no change is pending: nothing was committed, or the device has reverted it"
        )
    if code == RESTORING:
        return Busy(f"{device}: the device is reverting a change: try again later")
    return CommitFailed(
        f"{device}: a script ended with exit code {code}: {masked(text) or 'without output'}"
    )
