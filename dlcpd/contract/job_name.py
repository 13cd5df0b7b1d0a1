"""Names of jobs: unique to a launch among programs, without the part of the launch for people."""

import re
from collections.abc import Mapping
from typing import Final

MAX_GIVEN: Final = 96  # characters of the name that a user or a scheduler gave
LAUNCH_BYTES: Final = 8  # random ones of a launch, in hexadecimal digits behind the given name
_LAUNCHED: Final = re.compile(rf"(.+)-[0-9a-f]{{{2 * LAUNCH_BYTES}}}", re.DOTALL)


def of_launch(name: str, launch: bytes) -> str:
    """The name of one launch of the job `name`; `launch`: LAUNCH_BYTES random bytes."""
    return f"{name[:MAX_GIVEN]}-{launch.hex()}"


def given(job: str) -> str:
    """The name that a user or a scheduler gave: without the part of the launch."""
    found = _LAUNCHED.fullmatch(job)
    return found[1] if found else job


def title(job: str, others: Mapping[str, str]) -> str:
    """The name that people read: the given one, unless another job has that title.

    `others`: titles of the jobs that there are, by their names.
    """
    known, short = others.get(job), given(job)
    return known or (job if short in others.values() else short)


def means(name: str, job: str) -> bool:
    """Whether a user who says `name` means `job`: each may be a title or the name of a launch."""
    return name in (job, given(job)) or given(name) == job
