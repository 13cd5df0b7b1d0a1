"""The clock of a switch: tests make time pass on it, so no verdict hangs on how busy a machine is.

FOLDER/ahead has the seconds that it is fast; without that file it is right.
"""

import shutil
import time
from pathlib import Path


def ahead(folder: Path) -> float:
    file = folder / "ahead"
    return float(file.read_text()) if file.exists() else 0.0


def now(folder: Path) -> float:
    """Seconds since 1970."""
    return time.time() + ahead(folder)


def later(folder: Path, seconds: float) -> None:
    """So many seconds pass."""
    draft = folder / "ahead.draft"
    draft.write_text(str(ahead(folder) + seconds))
    draft.replace(folder / "ahead")


def make_sleep(folder: Path) -> None:
    """FOLDER/bin/sleep, which goes by that clock where it sleeps whole seconds."""
    tool, real = folder / "bin" / "sleep", shutil.which("sleep")
    tool.write_text(
        "#!/bin/sh\n"
        f'case $1 in *[!0-9]*) exec {real} "$1" ;; esac\n'
        f'ahead() {{ cut -d. -f1 "{folder}/ahead" 2>/dev/null || echo 0; }}\n'
        "now() { echo $(($(date +%s) + $(ahead))); }\n"
        "end=$(($(now) + $1))\n"
        f'until [ "$(now)" -ge "$end" ]; do {real} 0.05; done\n'
    )
    tool.chmod(0o755)
