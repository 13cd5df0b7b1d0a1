"""Access to the session socket: by its file's mode and group, then by user id."""

import grp
import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import ANYONE

ROOT: Final = 0
OWN_GROUP: Final = -1  # as os.chown takes it
FOR_GROUP: Final = 0o660
FOR_ALL: Final = 0o666  # a list of users decides: the kernel tells the user of a connection


@dataclass(frozen=True, slots=True)
class Access:
    """`users`: admitted user ids; None: all users that the file's `group` and `mode` admit."""

    users: frozenset[int] | None
    group: int
    mode: int

    @classmethod
    def configured(cls, users: Iterable[int | str], group: int | str = "") -> Self:
        """From [daemon] allowed_users and socket_group; "" = no group.

        Raises: BadConfig for a name that this host does not have.
        """
        users = tuple(users)
        number = OWN_GROUP if group == "" else _group_id(group)
        if ANYONE in users or (not users and number != OWN_GROUP):
            return cls(None, number, FOR_GROUP)
        listed = frozenset({ROOT} | {_user_id(user) for user in users or (os.getuid(),)})
        by_list = users and number == OWN_GROUP
        return cls(listed, number, FOR_ALL if by_list else FOR_GROUP)


def _user_id(user: int | str) -> int:
    if isinstance(user, int):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise BadConfig(f"[daemon] allowed_users: this host has no user {user!r}") from None


def _group_id(group: int | str) -> int:
    if isinstance(group, int):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise BadConfig(f"[daemon] socket_group: this host has no group {group!r}") from None
