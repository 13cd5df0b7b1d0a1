"""The version of this build: that of a release, or of a commit on the way to the next one.

Builds keep it in NOTE, beside this file; setup.py gets it from git. Needs the standard library.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"  # the next one
NOTE: Final = "_build.txt"  # "VERSION COMMIT" or "VERSION"
VARIABLE: Final = "DLCPD_BUILD"  # of builds from a copy without git: the text of a NOTE
PROJECT_URL: Final = "DLCPD_PROJECT_URL"  # of published builds: the project's page at a forge
_VERSION: Final = r"\d+\.\d+\.\d+(?:rc\d+)?(?:\.dev\d+)?(?:\+[0-9a-z.]+)?"
_FORM: Final = re.compile(rf"({_VERSION})(?: ([0-9a-f]{{7,40}}))?\s*")
_LONG: Final = 60.0  # seconds; git answers at once


def parsed(text: str) -> tuple[str, str]:
    """Version and commit of a note; the commit is "" where it is not known. Raises: ValueError."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:100]!r} is not VERSION COMMIT, like 0.1.0.dev7+g1a2b3c4 1a2b3c4")
    return found[1], found[2] or ""


def noted() -> str | None:
    """The note of this build; None: a checkout."""
    try:
        return Path(__file__).with_name(NOTE).read_text("ascii")
    except FileNotFoundError:
        return None


def described(folder: Path) -> str | None:
    """The note of the checkout in `folder`; None where git, or its history, is missing.

    A commit with the tag vX.Y.Z is X.Y.Z. Others count commits, so that later ones are newer.
    """
    if not (folder / ".git").exists():  # or git finds that of a folder above
        return None
    try:
        commit = _git(folder, "rev-parse", "--short=7", "HEAD")
        count = _git(folder, "rev-list", "--count", "HEAD")
        tags = _git(folder, "tag", "--points-at", "HEAD", "--list", "v*").split()
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except OSError:
        return None
    if tags and not changed:
        return f"{tags[-1].removeprefix('v')} {commit}"
    return f"{RELEASE}.dev{count}+g{commit}{'.changed' if changed else ''} {commit}"


def built(folder: Path, environ: Mapping[str, str]) -> str:
    """The note for a build of the source in `folder`. Raises: ValueError."""
    note = environ.get(VARIABLE) or noted() or described(folder) or f"{RELEASE}.dev0"
    parsed(note)
    return note


def project_urls(environ: Mapping[str, str]) -> dict[str, str]:
    """For the page of a package index; none where no project's page is given."""
    url = environ.get(PROJECT_URL, "").rstrip("/")
    pages = {"Changelog": "/blob/main/CHANGELOG.md", "Documentation": "/tree/main/docs"}
    pages |= {"Homepage": "", "Issues": "/issues"}
    return {name: url + page for name, page in pages.items()} if url else {}


def linked(readme: str, note: str, environ: Mapping[str, str]) -> str:
    """README.md for a package index, which has none of the files that its links name.

    They lead to the project's page; without one the text stays as it is.
    """
    url = environ.get(PROJECT_URL, "").rstrip("/")
    if not url:
        return readme
    version, commit = parsed(note)
    at = f"v{version}" if version == RELEASE else commit or "main"
    inside = r"\[([^]]*)\]\((?!https?:|#)"
    pictures = re.sub(f"!{inside}", rf"![\1]({url}/raw/{at}/", readme)
    return re.sub(f"(?<!!){inside}", rf"[\1]({url}/blob/{at}/", pictures)


def _git(folder: Path, *words: str) -> str:
    """Raises: OSError."""
    import subprocess  # noqa: PLC0415  # 20 ms, and only builds need it

    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_LONG, env=own
        )
    except subprocess.SubprocessError as exc:
        raise OSError(str(exc)) from exc
    return done.stdout.strip()


VERSION, COMMIT = parsed(noted() or f"{RELEASE}.dev0")

if __name__ == "__main__":  # `python3 dlcpd/build.py`: for builds from a copy
    sys.stdout.write(f"{built(Path(__file__).absolute().parents[1], os.environ)}\n")
