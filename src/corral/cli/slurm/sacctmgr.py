"""sacctmgr and sshare: which user may use which account. Accounts are queues; these
commands only show them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from corral.cli.slurm import columns
from corral.cli.slurm.columns import Field
from corral.cli.slurm.http_client import HeadClient, whoami
from corral.cli.slurm.sinfo import partitions
from corral.wire.slurm.listing_options import SACCTMGR, SSHARE
from corral.wire.slurm.options import ParsedOptions
from corral.wire.slurm.slurm_errors import SlurmRefusal

CLUSTER: Final = "corral"
Queue = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """A user's right to use one account. `total_weight` covers all sibling accounts."""

    user: str
    account: str
    queue: Queue
    total_weight: float


def _text_field(
    title: str, value: Callable[[Association], str], width: int = 10
) -> Field:
    return Field(title=title, value=value, width=width)


def _normalized_share(association: Association) -> float:
    return _queue_weight(association.queue) / (association.total_weight or 1.0)


def _used_gpu_seconds(association: Association) -> float:
    return float(association.queue.get("used_gpu_hours", 0.0)) * 3600.0


def _queue_weight(queue: Queue) -> float:
    return float(queue["form"].get("weight") or 1.0)


FIELDS: Final = {
    "cluster": _text_field("Cluster", lambda one: CLUSTER),
    "account": _text_field("Account", lambda one: one.account),
    "user": _text_field("User", lambda one: one.user),
    "defaultaccount": _text_field("Def Acct", lambda one: "default"),
    "defaultqos": _text_field("Def QOS", lambda one: "normal"),
    "partition": _text_field("Partition", lambda one: ""),
    "qos": _text_field("QOS", lambda one: "normal", 20),
    "name": _text_field("Name", lambda one: one.account),
    "descr": _text_field("Descr", lambda one: one.account, 20),
    "org": _text_field("Org", lambda one: CLUSTER, 20),
    "share": _text_field("Share", lambda one: f"{_queue_weight(one.queue):g}", 9),
    "admin": _text_field("Admin", lambda one: "None", 9),
    "rawshares": _text_field("RawShares", lambda one: f"{_queue_weight(one.queue):g}"),
    "normshares": _text_field(
        "NormShares", lambda one: f"{_normalized_share(one):.6f}", 11
    ),
    "rawusage": _text_field(
        "RawUsage", lambda one: str(round(_used_gpu_seconds(one))), 11
    ),
}
_SHOWN: Final = {
    "user": "user,defaultaccount,admin",
    "account": "account,descr,org",
    "association": "cluster,account,user,partition,share,qos",
    "cluster": "cluster",
    "qos": "qos",
}
_WITH_ACCOUNTS: Final = "user,defaultaccount,admin,cluster,account,partition,share,qos"
_SSHARE: Final = "account%-20,user,rawshares,normshares,rawusage"


def main(words: Sequence[str]) -> int:
    """Run sacctmgr show|list user|account|association|cluster|qos [NAME] [format=...],
    and return its exit code."""
    parsed_options = SACCTMGR.read(words, mixed=True)
    verb, entity, names, assigned = _parse_command(parsed_options)
    if parsed_options.has("help") or parsed_options.has("usage") or not verb:
        print(SACCTMGR.usage())
        return 0
    if verb not in ("show", "list"):
        raise SlurmRefusal(
            f"sacctmgr {verb} is not supported: an account is a queue of Corral",
            hint="run: corral queue set NAME, or: corral user add NAME",
        )
    if entity not in _SHOWN:
        raise SlurmRefusal(
            f"No valid entity in list command: {entity or 'none'}",
            hint=f"use one of: {', '.join(_SHOWN)}",
        )
    rows = _list_associations(
        HeadClient(),
        entity,
        names,
        assigned,
        with_accounts=parsed_options.has("associations"),
    )
    usual = (
        _WITH_ACCOUNTS
        if entity == "user" and parsed_options.has("associations")
        else _SHOWN[entity]
    )
    _print_table(
        parsed_options,
        assigned.get("format") or parsed_options.get("format") or usual,
        rows,
    )
    return 0


def shares(words: Sequence[str]) -> int:
    """Run sshare: print the accounts of a user and their weights. Return the exit code."""
    parsed_options = SSHARE.read(words, mixed=True)
    if parsed_options.has("help") or parsed_options.has("usage"):
        print(SSHARE.usage())
        return 0
    names = (
        (parsed_options.get("users") or "").split(",")
        if parsed_options.has("users")
        else [whoami()]
    )
    accounts = {"account": parsed_options.get("accounts") or ""}
    rows = _list_associations(HeadClient(), "user", names, accounts, with_accounts=True)
    _print_table(parsed_options, parsed_options.get("format") or _SSHARE, rows)
    return 0


def _parse_command(read: ParsedOptions) -> tuple[str, str, list[str], dict[str, str]]:
    """Return (verb, entity, names, NAME=VALUE pairs). Words such as `where` are
    ignored."""
    plain = [
        argument
        for argument in read.rest
        if "=" not in argument and argument.lower() != "where"
    ]
    pairs = (assignment.partition("=") for assignment in read.rest if "=" in assignment)
    assigned = {name.lower(): value for name, _, value in pairs}
    verb, entity, *names = [*plain, "", ""]
    singular = entity.lower().removesuffix("s") if entity.lower() != "qos" else "qos"
    entity = {"assoc": "association", "acct": "account"}.get(singular, singular)
    return verb.lower(), entity, [name for name in names if name], assigned


def _list_associations(
    head: HeadClient,
    entity: str,
    names: Sequence[str],
    assigned: dict[str, str],
    *,
    with_accounts: bool,
) -> list[Association]:
    if entity in ("cluster", "qos"):
        return [Association(user="", account="", queue={"form": {}}, total_weight=1.0)]
    queues = {queue["name"]: queue for queue in head.ask("GET", "/v1/queues")["queues"]}
    accounts = [
        queues.get(name, {"name": name, "form": {}}) for name in partitions(head)
    ]
    account_names = set(filter(None, (assigned.get("account") or "").split(",")))
    if entity == "account":
        account_names |= set(names)
        names = []
    users = [
        *names,
        *filter(None, (assigned.get("user") or assigned.get("name") or "").split(",")),
    ]
    total = sum(map(_queue_weight, accounts))
    associations = [
        Association(user=user, account=queue["name"], queue=queue, total_weight=total)
        for user in (users or [whoami()])
        for queue in accounts
        if (not account_names or queue["name"] in account_names)
        and _may_use(queue, user)
    ]
    one_line_each = entity == "user" and not with_accounts
    return (
        list({row.user: row for row in reversed(associations)}.values())
        if one_line_each
        else associations
    )


def _may_use(queue: Queue, user: str) -> bool:
    """Return whether the queue's own `allow` list admits the user. Only the head can
    resolve groups, so a list with a group admits every user."""
    allowed = queue["form"].get("allow")
    names = [allowed] if isinstance(allowed, str) else allowed
    return (
        not names
        or user in names
        or any(not str(name).isidentifier() for name in names)
    )


def _print_table(read: ParsedOptions, text: str, rows: Sequence[Association]) -> None:
    cells = columns.sacct(text.lower(), FIELDS)
    header = not read.has("noheader")
    if read.has("parsable") or read.has("parsable2"):
        ending = not read.has("parsable2")
        lines = columns.parsable(cells, rows, header=header, ending=ending)
    else:
        lines = columns.ruled(cells, rows, header=header)
    for line in lines:
        print(line)
