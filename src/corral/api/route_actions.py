"""Names of the actions of routes, for people. The audit log has shorter names, which
never change."""

from collections.abc import Mapping
from typing import Final

from corral.api.route_rights import RIGHTS, Key

# Each reads after "is not allowed to", and before "of other users" where a route has
# other rights on objects of others.
OF_AUDIT_NAMES: Final[Mapping[str, str]] = {
    "alert.test": "send test alerts",
    "batch.cancel": "cancel batches",
    "batch.create": "create batches",
    "batch.deliver": "deliver the results of batches",
    "checkpoint.change": "change the saves of jobs",
    "file.add": "upload files",
    "file.remove": "remove files",
    "gateway.report": "report the counters of gateways",
    "head.down": "stop the head",
    "history.import": "import job histories",
    "job.attach": "attach to jobs",
    "job.cancel": "cancel jobs",
    "job.change": "change jobs",
    "job.requeue": "requeue jobs",
    "job.resume": "resume jobs",
    "job.set": "change jobs",
    "job.signal": "send signals to jobs",
    "job.submit": "submit jobs",
    "job.suspend": "suspend jobs",
    "key.rotate": "replace the keys of the cluster",
    "log.read": "read logs",
    "model.pull": "fetch models onto nodes",
    "model.remove": "remove models from nodes",
    "node.check": "check nodes",
    "node.clear": "clear the faults of nodes",
    "node.cordon": "cordon nodes",
    "node.dead": "declare nodes dead",
    "node.drain": "drain nodes",
    "node.join": "add nodes",
    "node.label": "label nodes",
    "node.leave": "let a node leave the cluster",
    "node.remove": "remove nodes",
    "node.token": "create join tokens",
    "node.uncordon": "uncordon nodes",
    "output.list": "list output files",
    "output.read": "read output files",
    "queue.remove": "remove queues",
    "queue.set": "change queues",
    "secret.read": "read the secrets of jobs",
    "secret.remove": "remove secrets",
    "secret.set": "set secrets",
    "service.apply": "apply services",
    "service.rollback": "roll back services",
    "service.scale": "scale services",
    "service.stop": "stop services",
    "session.close": "close browser sessions",
    "session.link": "create log-in links",
    "session.open": "open browser sessions",
    "stacks.read": "read the stacks of jobs",
    "token.create": "create tokens",
    "token.renew": "renew the token of a node",
    "token.revoke": "revoke tokens",
    "user.add": "add users",
    "user.link": "link users to log-ins",
    "user.remove": "remove users",
    "user.set": "change users",
    "user.unlink": "unlink users from log-ins",
    "workdir.upload": "upload workdirs",
}
# of routes without a name in the audit log, by the first part of their path
READS: Final[Mapping[str, str]] = {
    "agents": "act as the agent of a node",
    "alerts": "read alerts",
    "audit": "read the audit log",
    "batches": "read batches",
    "checkups": "read the results of node checks",
    "events": "read events",
    "failures": "read the failures of jobs",
    "files": "read files",
    "gpus": "read the use of GPUs",
    "imports": "list imported job histories",
    "jobs": "read jobs",
    "join": "read the settings for new nodes",
    "log-ins": "read log-ins",
    "metrics": "read metrics",
    "models": "list the models on nodes",
    "nodes": "read nodes",
    "plan": "use the planner",
    "queues": "read queues",
    "reports": "read reports",
    "routes": "read the routes of gateways",
    "secrets": "list secrets",
    "series": "read time series",
    "services": "read services",
    "session": "read browser sessions",
    "snapshots": "upload workdirs",
    "status": "read the status of the cluster",
    "tokens": "list tokens",
    "users": "read user records",
}


def action_of(key: Key) -> str:
    """Return what a request to the route does, for example: cancel jobs."""
    name = RIGHTS[key].what
    return OF_AUDIT_NAMES[name] if name else READS[_resource_of(key)]


def _resource_of(key: Key) -> str:
    return key[1].removeprefix("/v1").split("/")[1]
