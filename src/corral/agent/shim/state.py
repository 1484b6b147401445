"""What a shim says of its attempt: whole each time. The same is read from its journal."""

from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]


class State:
    """Takes in journal records, in their order. `running` are ranks that were started."""

    def __init__(self) -> None:
        self.phase = "starting"
        self.started_at: float | None = None
        self.started_since_boot: float | None = None
        self.exits: dict[int, Record] = {}
        self.progress: Record | None = None
        self.saves: list[Record] = []
        self.trouble = ""
        self.infra = True

    def take(self, record: Record) -> None:
        """Records of a kind that is not known here are for newer shims."""
        kind = record.get("type")
        if kind == "started":
            self.started_at = record["at"]
            self.started_since_boot = record.get("since_boot")
            if self.phase == "starting":
                self.phase = "up"
        elif kind == "exit":
            told = {name: one for name, one in record.items() if name not in ("trouble", "infra")}
            self.exits[int(record["rank"])] = _without_type(told)
            if record.get("trouble"):
                self.trouble, self.infra = str(record["trouble"]), bool(record["infra"])
        elif kind == "save":
            self.saves.append(_without_type(record))
        elif kind == "ended":
            self.phase = "ended"
            self.progress = record.get("progress") or self.progress
            self.trouble, self.infra = str(record["trouble"]), bool(record["infra"])

    def take_progress(self, message: Record, at: float) -> None:
        """A rank's beat: it is the newest of all, and that rank's own pace is kept beside those of
        the others. Raises: ValueError, KeyError, TypeError."""
        ranks = {pace[0]: pace for pace in (self.progress or {}).get("ranks", ())}
        pace = pace_record(message)
        ranks[pace[0]] = pace
        self.progress = progress_record(message, at) | {
            "ranks": [ranks[one] for one in sorted(ranks)]
        }

    def acknowledge(self, attempt: int, steps: Iterable[int]) -> None:
        """These saves of this attempt are recorded: nobody needs to hear of them again."""
        known = set(steps)
        self.saves = [
            save
            for save in self.saves
            if save["quarantined"] or save["attempt"] != attempt or save["step"] not in known
        ]

    @property
    def message(self) -> Record:
        return {
            "type": "state",
            "phase": self.phase,
            "started_at": self.started_at,
            "started_since_boot": self.started_since_boot,
            "exits": [self.exits[rank] for rank in sorted(self.exits)],
            "progress": self.progress,
            "saves": self.saves,
            "trouble": self.trouble,
            "infra": self.infra,
        }


def of_journal(records: Iterable[Record]) -> State:
    state = State()
    for record in records:
        state.take(record)
    return state


def save_record(message: Record, attempt: int, at: float) -> Record:
    """A rank's word of a save as it is journaled. Raises: ValueError, KeyError, TypeError."""
    return {
        "type": "save",
        "attempt": int(message.get("attempt", attempt)),
        "step": int(message["step"]),
        "path": str(message["path"]),
        "manifest_sha256": str(message.get("manifest_sha256", "")),
        "size_bytes": int(message.get("size_bytes", 0)),
        "seconds": float(message.get("seconds", 0.0)),
        "stall_seconds": float(message.get("stall_seconds", 0.0)),
        "quarantined": str(message.get("quarantined") or ""),
        "at": at,
    }


def progress_record(message: Record, at: float) -> Record:
    """The newest progress. Raises: ValueError, KeyError, TypeError."""

    def number(name: str, default: float | None) -> float | None:
        value = message.get(name)
        return default if value is None else float(value)

    until = message.get("until")
    return {
        "step": int(message["step"]),
        "first_step": int(message.get("first_step", 0)),
        "until": None if until is None else int(until),
        "loss": number("loss", None),
        "samples_per_second": number("samples_per_second", None),
        "data_seconds": number("data_seconds", 0.0),
        "compute_seconds": number("compute_seconds", 0.0),
        "save_seconds": number("save_seconds", 0.0),
        "at": at,
    }


def pace_record(message: Record) -> list[float]:
    """Rank, step, and its seconds of data, of steps without them, and of those of waiting."""
    names = ("data_seconds", "compute_seconds", "wait_seconds")
    seconds = (float(message.get(name) or 0.0) for name in names)
    return [int(message.get("rank") or 0), int(message["step"]), *seconds]


def _without_type(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "type"}
