"""Joins a training to its embedded server: from a model and its ranks to a client."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlcp_client.environment import Environment
from dlcp_client.job.secret import job_secret
from dlcp_client.joining.sessions import checked_timeout
from dlcp_client.joining.torch_ranks import member_of_launch
from dlcp_client.ps.client import Client, Worker
from dlcp_client.ps.embedded import TAKEOVER, ServerMeeting
from dlcp_client.ps.options import WorkerOptions
from dlcp_client.ps.participation import take_part
from dlcp_client.ps.shared_host_daemon import EmbeddedServerOptions
from dlcp_client.ps.tensors import ModelTensors
from dlcpd.contract.errors import BadConfig


def join_embedded(
    look: Callable[[], ModelTensors],
    options: WorkerOptions,
    *,
    group: Any,
    snapshots: str | Path | None,
) -> tuple[ModelTensors, Client, bool]:
    """The result of `look`, a client, and whether this is worker 0. All ranks call it.

    Raises: the errors of `look`; see `register`. If one rank fails, all do.
    """
    timeout, environment = checked_timeout(options.timeout), Environment.read()
    deadline = time.monotonic() + timeout
    member = member_of_launch(group, job_secret(environment), timeout)
    name = options.job or environment.launch or "job"
    worker = Worker(member.rank, member.world_size, name)
    intent = ServerMeeting(member)
    with intent.told():
        tensors, given = look(), EmbeddedServerOptions.of(options.socket, options.config, snapshots)
        spec = tensors.spec()
        options.check_policies()
        options.check_staleness()
        if options.resume and not snapshots:
            raise BadConfig(
                "resume=True with an embedded server continues from the snapshots of an "
                "earlier job: pass the same snapshots= to both jobs"
            )
    parts = sum(one.size > 0 for one in tensors.named)
    directory, host_daemon = intent.open(parts, given, deadline)
    leave = host_daemon.close
    try:
        with intent.together(deadline):  # other ranks learn the error before they miss this rank
            client = take_part(
                tensors.named,
                spec,
                worker,
                directory,
                host_daemon,
                shards=directory.placement.shards,
                options=options,
                deadline=deadline,
                takeover=TAKEOVER,
            )
            leave = client.close
    except BaseException:
        leave()
        raise
    host_daemon.settled()
    return tensors, client, worker.rank == 0
