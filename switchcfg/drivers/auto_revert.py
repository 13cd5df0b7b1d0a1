"""A commit that reverts by itself, on any device with a POSIX shell. Pure: scripts only.

The device itself waits and restores, so it does not matter what becomes of us or of the network. A
folder per device in /run is lock and state: what is there goes with a reboot, as do tc and nft.
Renaming `armed` decides who acts, timer, confirm or abort: rename(2) succeeds once.
"""

import shlex
from dataclasses import dataclass
from typing import Final

from switchcfg.drivers.driver import busy
from switchcfg.errors import Busy, CommitFailed, NothingPending, SwitchcfgError

FOLDER: Final = "/run/switchcfg"
BUSY, DISARMED, NONE, RESTORING, RUNNING = 75, 76, 77, 78, 79  # exit codes of scripts below
STEP_ENDS: Final = 30  # seconds that restoring waits for a step that is under way, then ends it
# A step that went on while we restore, or after, would leave a half: both hold the same lock.
_RESTORE: Final = f"""\
exec 9>"$dir/lock"
if ! flock -w {STEP_ENDS} 9; then
    step=$(cat "$dir/step")
    kill -s KILL -- "-$step" 2>/dev/null || kill -9 "$step" 2>/dev/null || :
fi
sh -eu "$dir/restore"
"""
# A step that may take our connection away: it goes on without one, and leaves how it ended.
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
# A number may be another process's by now; its command line tells. The timer leads its session.
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
    folder: str = FOLDER  # of the host that waits: the device's, or one of ours

    def arm(self, restore: str, seconds: int, who: str) -> str:
        """Takes the lock and starts the timer. Exit code BUSY: somebody else has it; says who."""
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
        """Does one step while the timer runs. Exit code DISARMED: it does not any more."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
exec 9>"$dir/lock"
flock 9
[ -e "$dir/armed" ] || exit {DISARMED}
echo $$ >"$dir/step"
{payload}"""

    def begin(self, payload: str) -> str:
        """Begins a step that goes on by itself, whatever becomes of our connection: `ended` asks
        for it. The folder that it may use is that of its own file, $0."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
rm -f "$dir/ended"
{_file("long", payload)}setsid sh -c {shlex.quote(_LONG)} "$dir" </dev/null >/dev/null 2>&1 9>&- &
"""

    def ended(self) -> str:
        """Asks for what `begin` began. Exit code RUNNING: it has not ended; DISARMED: it may not
        go on; else its own, with what it said."""
        return f"""\
{self._here}[ -e "$dir/armed" ] || exit {DISARMED}
[ -e "$dir/ended" ] || exit {RUNNING}
cat "$dir/said"
exit "$(cat "$dir/ended")"
"""

    def confirm(self) -> str:
        """Keeps what was done. Exit code NONE: nothing was pending."""
        return f"""\
{self._here}mv "$dir/armed" "$dir/confirmed" 2>/dev/null || exit {NONE}
{_ALIVE}{_STOP}rm -rf "$dir"
"""

    def abort(self) -> str:
        """Restores now, or again where the timer could not. Exit code NONE: there is nothing to
        restore; RESTORING: the timer does so at this moment; else that of the restoring script."""
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
        """Says who, seconds left, and what went wrong: a line each. Nothing: none is pending."""
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
    """Lines that write a file of the folder."""
    end = "END"
    while end in text:  # a line of a script that ends ours would run the rest of it
        end += "D"
    return f"""cat >"$dir/{name}" <<'{end}'\n{text}{end}\n"""


def refusal(device: str, code: int, said: str) -> SwitchcfgError:
    """What an exit code of these scripts means; `said` is their output."""
    text = said.strip()
    if code == BUSY:
        return busy(device, text)
    if code == DISARMED:
        return CommitFailed(f"{device}: reverted before all was done: time ran out")
    if code == NONE:
        return NothingPending(f"{device}: nothing is pending: never committed, or reverted since")
    if code == RESTORING:
        return Busy(f"{device}: is being reverted at this moment; ask again")
    return CommitFailed(f"{device}: exit code {code}: {text or 'and it said nothing'}")
