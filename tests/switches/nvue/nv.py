"""`nv` of a switch like Cumulus Linux: a pending revision per user, and applies that go back.

Written from Cumulus Linux 5.11's "NVUE CLI" and the NVUE reference, not from switchcfg. State is
NVUE_FOLDER/nvue.json; NVUE_FOLDER/startup is what `config save`, and auto save, write. Files there
that change what it does: `no-confirm` is a release whose `apply` knows no `--confirm`; `version`
is the release; `deaf`: what ends a confirm is answered and not done; `late`: it goes back just
before it is confirmed; `no-delete` is a release that keeps what was detached.
What `config diff` prints is YAML, first what goes and then what comes (the reference's `config
find` and `config show` have that shape); NVIDIA's tests of NVOS have `detached [rev_id: N]`.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["NVUE_FOLDER"])
USER = os.environ.get("NVUE_USER", "cumulus")
ID = r"[\w.-]+"
NUMBER = r"\d+"
SETTINGS = (
    r"interface swp\d+ description \S+",
    rf"interface swp\d+ qos congestion-control profile {ID}",
    rf"qos mapping {ID} trust (l2|l3|both|port)",
    rf"qos mapping {ID} dscp ([0-9]|[1-5][0-9]|6[0-3]) switch-priority [0-7]",
    rf"qos egress-queue-mapping {ID} switch-priority [0-7] traffic-class [0-7]",
    rf"qos egress-scheduler {ID} traffic-class [0-7] mode (strict|dwrr)",
    rf"qos egress-scheduler {ID} traffic-class [0-7] bw-percent {NUMBER}",
    rf"qos pfc {ID} (rx|tx) (enable|disable)",
    rf"qos pfc {ID} cable-length {NUMBER}",
    rf"qos pfc {ID} switch-priority [0-7]",
    rf"qos traffic-pool {ID} memory-percent {NUMBER}",
    rf"interface swp\d+ qos pfc profile {ID}",
    rf"qos congestion-control {ID} traffic-class [0-7] (min|max)-threshold {NUMBER}",
    rf"qos congestion-control {ID} traffic-class [0-7] probability {NUMBER}",
    rf"qos congestion-control {ID} traffic-class [0-7] (red|ecn) (enable|disable)",
    rf"qos advance-buffer-config {ID} egress-lossy-buffer traffic-class [0-7] "
    r"shared-alpha alpha_\w+",
)


class RefusedError(Exception):
    pass


def now() -> float:
    """As tests.switches.clock has it, which -S does not find."""
    ahead = FOLDER / "ahead"
    return time.time() + (float(ahead.read_text()) if ahead.exists() else 0.0)


class Nvue:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    @property
    def applied(self) -> list[str]:
        found: list[str] = self.state["revisions"][self.state["applied"]]["lines"]
        return found

    @property
    def waiting(self) -> str | None:
        revisions = self.state["revisions"]
        return next((name for name in revisions if revisions[name]["state"] == "confirm"), None)

    def next(self) -> str:
        return str(max(map(int, self.state["revisions"])) + 1)

    def candidate(self) -> list[str]:
        """This user's, begun from what is applied."""
        found: list[str] = self.state["pending"].setdefault(USER, list(self.applied))
        return found

    def set(self, words: list[str]) -> None:
        line = " ".join(words)
        if not any(re.fullmatch(shape, line) for shape in SETTINGS):
            raise RefusedError(f"Error: Invalid Command: nv set {line}")
        stem = line.rpartition(" ")[0]
        if re.fullmatch(rf"qos pfc {ID} switch-priority", stem):
            stem = line  # a collection: it has several
        lines = self.candidate()
        lines[:] = [each for each in lines if each != line and each.rpartition(" ")[0] != stem]
        lines.append(line)

    def unset(self, words: list[str]) -> None:
        """What is not there may be taken back, as NVUE does."""
        stem = " ".join(words)
        lines = self.candidate()
        lines[:] = [each for each in lines if each != stem and not each.startswith(f"{stem} ")]

    def apply(self, words: list[str]) -> str:
        revision = words.pop(0) if words and words[0].isdecimal() else ""
        if "--confirm-yes" in words or "--confirm-no" in words:
            return self.end(revision or self.waiting or "", keep="--confirm-yes" in words)
        message = words[words.index("-m") + 1] if "-m" in words else f"Config update by {USER}"
        if self.waiting is not None:
            raise RefusedError("Error: another apply waits to be confirmed")
        if USER not in self.state["pending"]:
            raise RefusedError("Error: there is no pending configuration")
        name = self.next()
        lines = self.state["pending"][USER]
        if wrong := contradiction(lines):
            return f"Invalid config [rev_id: {name}]\n  {wrong}\n"  # and no exit code says so
        del self.state["pending"][USER]
        one = {
            "state": "applied",
            "lines": lines,
            "before": self.state["applied"],
            "apply-meta": {"method": "CLI", "user": USER, "message": message},
        }
        self.state["revisions"][name], self.state["applied"] = one, name
        if "--confirm" in words:
            seconds = duration(words[words.index("--confirm") + 1])
            one["state"] = "confirm"
            argv = (sys.executable, __file__, "-later", name, str(now() + seconds))
            subprocess.Popen(
                argv,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        else:
            self.save()
        return f"applied [rev_id: {name}]\n"

    def end(self, revision: str, *, keep: bool) -> str:
        one = self.state["revisions"].get(revision)
        if one is None or one["state"] != "confirm":
            raise RefusedError(f"Error: revision {revision!r} does not wait to be confirmed")
        if (FOLDER / "deaf").exists():
            return "not now\n"
        if (FOLDER / "late").exists():
            keep = False
        if keep:
            one["state"] = "applied_and_saved"
            self.save()
        else:
            one["state"], self.state["applied"] = "inactive", one["before"]
            if (FOLDER / "late").exists():
                raise RefusedError(f"Error: revision {revision!r} does not wait to be confirmed")
        return ""

    def save(self) -> None:
        (FOLDER / "startup").write_text("\n".join(self.applied))

    def detach(self) -> str:
        lines = self.state["pending"].pop(USER, None)
        if lines is None:
            return ""
        name = self.next()
        self.state["revisions"][name] = {"state": "detached", "lines": lines}
        return f"detached [rev_id: {name}]\n"

    def delete(self, revision: str) -> str:
        if (FOLDER / "no-delete").exists():
            raise RefusedError("Error: Invalid Command: nv config delete")
        if revision == self.state["applied"]:
            raise RefusedError(f"Error: Revision '{revision}' is currently applied")
        if self.state["revisions"].pop(revision, None) is None:
            raise RefusedError(f"Error: Revision {revision} does not exist")
        return f"deleted [rev_id: {revision}]\n"

    def diff(self) -> str:
        was, now = self.applied, self.state["pending"].get(USER, self.applied)
        stems = {each.rpartition(" ")[0] for each in now}
        gone = [
            f"{stem} {{}}"
            for stem, _, _ in (each.rpartition(" ") for each in was)
            if stem not in stems
        ]
        come = [each for each in now if each not in was]
        return "".join(
            f"- {verb}:\n{yaml(lines)}" for verb, lines in (("unset", gone), ("set", come)) if lines
        )

    def revisions(self) -> str:
        told = {
            name: {key: one[key] for key in ("state", "apply-meta") if key in one}
            for name, one in self.state["revisions"].items()
        }
        return json.dumps(told, indent=2) + "\n"


def yaml(lines: list[str]) -> str:
    """Words as keys of each other, the last one as their value."""
    out, above = "", list[str]()
    for *keys, value in (line.split() for line in sorted(lines)):
        same = next(
            (at for at, (one, two) in enumerate(zip(keys, above, strict=False)) if one != two),
            min(len(keys), len(above)),
        )
        for depth, key in list(enumerate(keys))[same:]:
            shown = f"'{key}'" if key.isdecimal() else key
            end = f" {value}" if depth == len(keys) - 1 else ""
            out += f"{'  ' * (depth + 2)}{shown}:{end}\n"
        above = keys
    return out


def contradiction(lines: list[str]) -> str:
    """What NVUE sees only when it applies."""
    edges: dict[str, dict[str, int]] = {}
    for line in lines:
        if found := re.fullmatch(r"(qos congestion-control .*) (min|max)-threshold (\d+)", line):
            edges.setdefault(found[1], {})[found[2]] = int(found[3])
    for what in ("traffic-pool", "egress-scheduler"):
        parts = [line.split() for line in lines if line.startswith(f"qos {what} ")]
        total = sum(int(p[-1]) for p in parts if p[-2] in ("memory-percent", "bw-percent"))
        if total > 100:
            return f"qos {what}: the sum of all is {total}, more than 100"
    bound = {line.split()[-1] for line in lines if " qos pfc profile " in line}
    for profile in bound:
        if f"qos pfc {profile} tx enable" not in lines:
            return f"qos pfc {profile}: there is no such profile that sends"
    if bound and not any(line.startswith("qos traffic-pool default-lossless ") for line in lines):
        return "qos pfc: no memory for lossless traffic"
    for where, edge in edges.items():
        if edge.get("min", 0) > edge.get("max", 1 << 62):
            return f"{where}: min-threshold is above max-threshold"
    return ""


def duration(text: str) -> float:
    """A number is minutes; `s`, `m` and `h` say else."""
    found = re.fullmatch(r"(\d+)([smh]?)", text)
    if found is None:
        raise RefusedError(f"Error: {text!r} is no time")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "": 60}[found[2]]


def printed(lines: list[str]) -> Iterator[str]:
    """As `nv config show -o commands`; interfaces that agree on one line: `swp1-2,32`."""
    same: dict[str, list[int]] = {}
    for line in lines:
        found = re.fullmatch(r"interface swp(\d+) (.*)", line)
        if found:
            same.setdefault(found[2], []).append(int(found[1]))
        else:
            yield f"nv set {line}"
    for rest, numbers in same.items():
        yield f"nv set interface swp{ranges(sorted(numbers))} {rest}"


def ranges(numbers: list[int]) -> str:
    out: list[list[int]] = []
    for number in numbers:
        if out and out[-1][-1] == number - 1:
            out[-1][1:] = [number]
        else:
            out.append([number])
    return ",".join("-".join(map(str, each)) for each in out)


def answer(nvue: Nvue, words: list[str]) -> str:
    match words:
        case ["set", *rest]:
            nvue.set(rest)
        case ["unset", *rest]:
            nvue.unset(rest)
        case ["config", "show", *rest]:
            return shown(nvue, rest)
        case ["config", *rest]:
            return configured(nvue, rest)
        case ["-later", name, _]:
            if nvue.state["revisions"][name]["state"] == "confirm":
                nvue.end(name, keep=False)
        case _:
            raise RefusedError(f"Error: Invalid Command: nv {' '.join(words)}")
    return ""


def shown(nvue: Nvue, words: list[str]) -> str:
    if words == ["-o", "commands"]:
        return "".join(f"{line}\n" for line in printed(nvue.applied))
    version = (FOLDER / "version").read_text()
    return f"header:\n  model: VX\n  nvue-api-version: nvue_v1\n  version: {version}\n"


def configured(nvue: Nvue, words: list[str]) -> str:
    match words:
        case ["apply", *rest]:
            if "--confirm" in rest and (FOLDER / "no-confirm").exists():
                raise RefusedError("Error: unrecognized arguments: --confirm")
            return nvue.apply(rest)
        case ["detach"]:
            return nvue.detach()
        case ["delete", revision]:
            return nvue.delete(revision)
        case ["save"]:
            nvue.save()
        case ["diff"]:
            return nvue.diff()
        case ["revision", "-o", "json"]:
            return nvue.revisions()
        case _:
            raise RefusedError(f"Error: Invalid Command: nv config {' '.join(words)}")
    return ""


def pending(revision: str) -> bool:
    state = json.loads((FOLDER / "nvue.json").read_text())
    return bool(state["revisions"].get(revision, {}).get("state") in {None, "confirm"})


def main(words: list[str]) -> int:
    if words[:1] == ["-later"]:
        while now() < float(words[2]) and pending(words[1]):
            time.sleep(0.1)
    with (FOLDER / "nvue.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        nvue = Nvue(json.loads((FOLDER / "nvue.json").read_text()))
        said, wrong = "", ""
        try:
            said = answer(nvue, words)
        except RefusedError as exc:
            wrong = f"{exc}\n"
        draft = FOLDER / "nvue.draft"
        draft.write_text(json.dumps(nvue.state))
        draft.replace(FOLDER / "nvue.json")
    sys.stdout.write(said)
    sys.stderr.write(wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
