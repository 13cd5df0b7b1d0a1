"""News of engines about peers and paths of a session, for the log."""

import asyncio
from collections import Counter
from typing import Any, Final

from dlcpd.core.paths.health import PathState
from dlcpd.core.session.events import PeerState
from dlcpd.core.wire.sizes import LEAST_MTU
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.sessions.news_log import NewsLog
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.io.control_events import PathChanged, PathMtuChanged, PeerChanged

SILENT: Final = "paused, overloaded, cut off or dead: it is lost after [network] peer_timeout"
GOOD_NEWS: Final = frozenset({PathState.UP.value, PathState.CLEAR.value})


class NetworkNews:
    """Alike news are summed up."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engines: Engines, counters: Counter[str]
    ) -> None:
        self._loop, self._engines, self._counters = loop, engines, counters
        self._log = NewsLog(loop)

    def close(self) -> None:
        """Log what has not been logged: the daemon ends."""
        self._log.close()

    def tell(
        self, session: LocalSession, engine: int, event: PathChanged | PeerChanged | PathMtuChanged
    ) -> None:
        """Log the news of an engine, and count suspected peers."""
        match event:
            case PathChanged(_, rank, path, state, loss):
                tell = log.info if state in GOOD_NEWS else log.warning
                self._log.tell(
                    tell,
                    state,
                    (_towards(session, rank), path),
                    **self._whose(session, engine, rank, path),
                    loss=round(loss, 5),
                )
            case PeerChanged(_, rank, state, silent):
                self._peer_changed(session, engine, rank, PeerState(state), silent)
            case PathMtuChanged():
                self._mtu_changed(session, engine, event)

    def _peer_changed(
        self, session: LocalSession, engine: int, rank: int, state: PeerState, silent: float
    ) -> None:
        """A peer is suspected, or no longer: logged once, however many engines report it."""
        told = session.silence.change(engine, rank, state, self._loop.time())
        if told is None:
            return
        self._counters[state.value] += 1
        text = SILENT if state is PeerState.SUSPECTED else ""
        tell = (log.warning if text else log.info) if told else log.debug
        self._log.tell(
            tell,
            state.value,
            _towards(session, rank),
            session=session,
            peer=session.membership.links.get(rank, rank),
            silent=round(silent, 1),
            **({"text": text} if text else {}),
        )

    def _whose(self, session: LocalSession, engine: int, rank: int, path: int) -> dict[str, Any]:
        """Log fields of a peer's path, with the engine if there are several."""
        number = {"engine": engine} if len(self._engines) > 1 else {}
        return {"session": session, "peer": rank, "path": path} | number

    def _mtu_changed(self, session: LocalSession, engine: int, news: PathMtuChanged) -> None:
        fields = self._whose(session, engine, news.rank, news.path)
        alike = _towards(session, news.rank), news.path, news.mtu
        if not news.mtu:
            self._log.tell(
                log.warning,
                "path_mtu_too_small",
                alike,
                **fields,
                least=LEAST_MTU,
                text="small datagrams arrive and larger ones do not: raise the links' MTU",
            )
        elif news.mtu < news.before:
            more = {"mtu": news.mtu, "before": news.before}
            self._log.tell(log.warning, "path_mtu_fell", alike, **fields, **more)
        else:
            self._log.tell(log.info, "path_mtu", alike, **fields, mtu=news.mtu)


def _towards(session: LocalSession, rank: int) -> tuple[str, str]:
    """The job, and the host of a peer: news of all its ranks are alike."""
    link = session.membership.links.get(rank)
    return session.membership.job, link.host if link else str(rank)
