"""Settings of this rank from its environment: its rank in the gang, and its checkpoint
rule."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.domain.errors import Refusal
from corral.domain.keep_rule import DEFAULT_LAST, BestRule, Goal, KeepRule
from corral.domain.store_url import is_store_url, parse_store_url
from corral.train.save_path import SavePath, parse_save_path

NODE_MTBF_SECONDS: Final = 30 * 86400.0  # of a node nothing is known about


class SettingInvalid(Refusal):
    """The error for an invalid value in the environment."""

    code = "setting_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A save that the head has recorded. `job`: the job that wrote it; "" from heads
    that do not name the job."""

    attempt: int
    step: int
    path: SavePath
    manifest_sha256: str
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Rank, gang and checkpoint settings of one process. Durations are in seconds.

    `attempt` None: no head counts the attempts, so they are counted by the place of the
    saves. `resume` None: no head records saves, so the newest complete save is used to
    resume. `interval_seconds` None: the library chooses the interval. `memory_path` None:
    the node has no memory that stays after the rank. `passed_over_attempt`: this attempt
    and older ones left no saves in memory that may be used.
    `bytes_per_second`: cap on what this rank writes for its saves; None: no cap.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    nodes: int = 1
    master_address: str = ""
    pretend_gpus: bool = False
    job: str = ""
    attempt: int | None = None
    socket: str | None = None
    checkpoint_path: SavePath | None = None
    interval_seconds: float | None = None
    bytes_per_second: float | None = None
    keep: KeepRule = field(default_factory=KeepRule)
    node_mtbf_seconds: float = NODE_MTBF_SECONDS
    memory_path: Path | None = None
    passed_over_attempt: int = 0
    resume: tuple[Committed, ...] | None = None

    def is_own(self, save: Committed) -> bool:
        """Return whether this job wrote the save, and so may remove or quarantine it."""
        return save.job in ("", self.job)


def read_settings(
    env: Mapping[str, str],
    *,
    checkpoint: str | None = None,
    interval: float | str = "auto",
    keep: int | Mapping[str, Any] = DEFAULT_LAST,
) -> Settings:
    """Read the settings from the environment. An argument is used where the environment
    has no value.

    Raises: SettingInvalid.
    """
    path = env.get("CORRAL_CHECKPOINT_PATH") or checkpoint
    inside = bool(env.get("CORRAL_JOB_ID"))
    return Settings(
        rank=_parse_int_variable(env, "RANK", 0),
        world_size=_parse_int_variable(env, "WORLD_SIZE", 1),
        local_rank=_parse_int_variable(env, "LOCAL_RANK", 0),
        nodes=_count_nodes(env),
        master_address=env.get("MASTER_ADDR", ""),
        pretend_gpus=env.get("CORRAL_PRETEND_GPUS", "0") not in ("", "0"),
        job=env.get("CORRAL_JOB_ID", ""),
        attempt=_parse_int_variable(env, "CORRAL_ATTEMPT", 1) if inside else None,
        socket=env.get("CORRAL_SOCKET") or None,
        checkpoint_path=_parse_path(path) if path else None,
        interval_seconds=_parse_interval(
            env.get("CORRAL_CHECKPOINT_INTERVAL") or str(interval)
        ),
        bytes_per_second=_share_of_bandwidth(env),
        keep=_read_keep_rule(env, keep),
        node_mtbf_seconds=_parse_seconds(
            env, "CORRAL_NODE_MTBF_SECONDS", NODE_MTBF_SECONDS
        ),
        passed_over_attempt=_parse_int_variable(env, "CORRAL_PASSED_OVER_ATTEMPT", 0),
        memory_path=_optional_path(env, "CORRAL_MEMORY_PATH"),
        resume=_committed(env.get("CORRAL_RESUME") or "[]") if inside else None,
    )


def _optional_path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _read_keep_rule(env: Mapping[str, str], keep: int | Mapping[str, Any]) -> KeepRule:
    """Return the rule of saves that stay on disk: that of the job's spec, else `keep`,
    which is the number of newest saves or a mapping as in the spec, with `every` in
    seconds.

    Raises: SettingInvalid.
    """
    if "CORRAL_CHECKPOINT_KEEP_RULE" in env:
        return _parse_keep_rule(env["CORRAL_CHECKPOINT_KEEP_RULE"])
    if not isinstance(keep, Mapping):
        last = _parse_int_variable(env, "CORRAL_CHECKPOINT_KEEP", keep)
        return KeepRule(last=max(1, last))
    if "CORRAL_CHECKPOINT_KEEP" in env:
        last = _parse_int_variable(env, "CORRAL_CHECKPOINT_KEEP", DEFAULT_LAST)
        return KeepRule(last=max(1, last))
    return _parse_keep_rule(json.dumps(keep))


def _parse_keep_rule(text: str) -> KeepRule:
    try:
        rule = json.loads(text)
        best = rule.get("best")
        every = None if rule.get("every") is None else float(rule["every"])
        if every is not None and not 0 < every < float("inf"):
            raise ValueError(f"every is {every}, not a number of seconds above 0")
        return KeepRule(
            last=max(1, int(rule.get("last", DEFAULT_LAST))),
            every_seconds=every,
            best=None if best is None else _parse_best_rule(best),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingInvalid(
            f"the rule of saves to keep cannot be read: {error!r}; write for example "
            '{"last": 3, "every": 86400, "best": {"metric": "loss", "count": 2}}'
        ) from error


def _parse_best_rule(best: Mapping[str, Any]) -> BestRule:
    return BestRule(
        metric=str(best["metric"]),
        count=max(1, int(best.get("count", 1))),
        goal=Goal(best.get("goal", Goal.MIN)),
    )


def _parse_int_variable(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal():
        raise SettingInvalid(f"{name} is {text!r}, not a whole number")
    return int(text)


def _parse_seconds(env: Mapping[str, str], name: str, default: float) -> float:
    return _parse_positive(env.get(name) or str(default), name, "seconds")


def _parse_positive(text: str, name: str, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise SettingInvalid(f"{name} is {text!r}, not a number of {unit} above 0")
    return value


def _parse_path(text: str) -> SavePath:
    try:
        return parse_save_path(text)
    except ValueError as error:
        raise SettingInvalid(
            f"the checkpoint path {text!r} is not valid: {error}; write for example "
            "s3://bucket/prefix"
        ) from error


def _share_of_bandwidth(env: Mapping[str, str]) -> float | None:
    """Return this rank's share of its node's cap, which all ranks of the node share."""
    name = "CORRAL_CHECKPOINT_BANDWIDTH"
    if not env.get(name):
        return None
    ranks = max(1, _parse_int_variable(env, "LOCAL_WORLD_SIZE", 1))
    return _parse_positive(env[name], name, "bytes a second") / ranks


def _parse_interval(text: str) -> float | None:
    if text == "auto":
        return None
    return _parse_seconds({"interval": text}, "interval", 0.0)


def _count_nodes(env: Mapping[str, str]) -> int:
    """Return the number of nodes. CORRAL_NODES is this number, or a list of node
    addresses separated by commas."""
    text = env.get("CORRAL_NODES") or env.get("SLURM_NNODES") or "1"
    return int(text) if text.isdecimal() else len(text.replace(",", " ").split())


def _recorded_path(text: str) -> SavePath:
    return parse_store_url(text) if is_store_url(text) else Path(text)


def _committed(text: str) -> tuple[Committed, ...]:
    try:
        return tuple(
            Committed(
                attempt=int(load["attempt"]),
                step=int(load["step"]),
                path=_recorded_path(str(load["path"])),
                manifest_sha256=str(load["manifest_sha256"]),
                job=str(load.get("job", "")),
            )
            for load in json.loads(text)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SettingInvalid(f"CORRAL_RESUME cannot be read: {error!r}") from error
