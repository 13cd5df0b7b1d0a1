"""Keys of hosts in a folder, as `dlcpctl keys` leaves them."""

from pathlib import Path

from dlcpd.daemon.config.tables import AUTHORISED, IDENTITY
from dlcpd.daemon.peers.key_files import OF_ALL, OF_OWNER, Identity, write
from dlcpd.daemon.peers.keys import KeyPair


def host_with_keys(folder: Path, host: str) -> Identity:
    """A host's folder of keys: its identity, and nobody authorised."""
    made = Identity(host, KeyPair.new())
    (folder / AUTHORISED).mkdir(parents=True)
    write(folder / IDENTITY, made.text(), OF_OWNER, replace=False)
    return made


def authorise(folder: Path, *hosts: Identity) -> None:
    for host in hosts:
        file = folder / AUTHORISED / f"{host.host}.toml"
        write(file, host.public.text(), OF_ALL, replace=True)


def revoke(folder: Path, host: Identity) -> None:
    (folder / AUTHORISED / f"{host.host}.toml").unlink()


def security(folder: Path) -> str:
    """The table of a configuration file."""
    return f'[security]\nidentity = "{folder / IDENTITY}"\nauthorised = "{folder / AUTHORISED}"\n'
