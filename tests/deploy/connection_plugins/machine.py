"""Ansible's way into a machine of tests/deploy/machine.py: by the namespaces of its processes."""

import subprocess
from typing import Any

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: machine
short_description: run what is to be run in a machine of systemd-nspawn
options:
  remote_addr:
    description: the process id of the machine's first process
    vars:
      - name: ansible_host
"""


class Connection(ConnectionBase):  # type: ignore[misc]  # Ansible ships no types
    """As root, who needs no password there."""

    transport = "machine"
    has_pipelining = True

    def _connect(self) -> "Connection":
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr of a shell's command line."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = subprocess.run(
            [
                "nsenter",
                "--target",
                str(self.get_option("remote_addr")),
                "--all",
                "env",
                "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "LC_ALL=C.UTF-8",
                "sh",
                "-c",
                cmd,
            ],
            input=in_data or b"",
            capture_output=True,
            check=False,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Bring a file there."""
        with open(in_path, "rb") as file:
            code, _, said = self.exec_command(f"cat >'{out_path}'", in_data=file.read())
        assert code == 0, said

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Bring a file from there."""
        code, data, said = self.exec_command(f"cat '{in_path}'")
        assert code == 0, said
        with open(out_path, "wb") as file:
            file.write(data)

    def close(self) -> None:
        """Nothing is open."""

    def reset(self, *_: Any) -> None:
        """Nothing is open."""
