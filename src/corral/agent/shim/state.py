"""The full state of an attempt as its shim reports it. An agent can derive the same
state from the journal."""

from collections.abc import Container, Iterable, Sequence
from math import isfinite
from operator import itemgetter
from typing import Any, Final

from corral.agent.shim.scalars import Scalars, scalars_within
from corral.domain.bounds import (
    MOST_LOSS,
    MOST_MOMENT,
    MOST_RANKS,
    MOST_SAVES,
    MOST_SCALARS,
    PATH_LETTERS,
    SCALAR_LETTERS,
    SENTENCE_LETTERS,
    OutOfBounds,
    cut,
    field,
    integer,
    number,
    text,
)

Record = dict[str, Any]
SPENT: Final = (
    "data_seconds",
    "data_read_seconds",
    "data_decode_seconds",
    "data_copy_seconds",
    "compute_seconds",
    "save_seconds",
    "restore_seconds",
)
PHASE_LETTERS: Final = 64
COUNTED_SECONDS: Final = ("data_seconds", "compute_seconds")
PACE: Final = ("rank", "step", "data_seconds", "compute_seconds", "wait_seconds")
NOT_WITHIN: Final = (ValueError, KeyError, TypeError)
# of the attempt, in a rank's record
TROUBLE: Final = frozenset({"trouble", "infra", "trouble_of", "trouble_kind"})


class ShimState:
    """State of an attempt that results from its journal records in their order.
    `running`: the ranks that were started."""

    def __init__(self) -> None:
        self.phase = "starting"
        self.started_at: float | None = None
        self.started_since_boot: float | None = None
        self.exits: dict[int, Record] = {}
        self.progress: Record | None = None
        self.scalars = Scalars()
        # of a program that does not report itself: newest steps by its processes
        self._counted: dict[int, dict[tuple[int, int], Record]] = {}
        self.saves: list[Record] = []
        self.trouble = ""
        self.infra = True
        self.trouble_of = ""
        self.trouble_kind = ""
        # which ranks say that they are in a phase without steps, and in which
        self.declared: dict[int, str] = {}
        self.dropped = 0  # messages of ranks that were out of bounds
        self.waits_for_input: int | None = None  # the first rank that does

    def take(self, record: Record) -> None:
        """Apply a journal record. Records of an unknown kind come from newer shims and
        are ignored."""
        kind = record.get("type")
        if kind == "started":
            self.started_at = record["at"]
            self.started_since_boot = record.get("since_boot")
            if self.phase == "starting":
                self.phase = "up"
        elif kind == "exit":
            known_fields = {
                name: value for name, value in record.items() if name not in TROUBLE
            }
            self.exits[int(record["rank"])] = _without_type(known_fields)
            if record.get("trouble"):
                self._take_trouble(record)
        elif kind == "save":
            self._take_save(_without_type(record))
        elif kind == "ended":
            self.phase = "ended"
            self.progress = progress_within(record.get("progress")) or self.progress
            self._take_trouble(record)

    def _take_trouble(self, record: Record) -> None:
        self.trouble, self.infra = str(record["trouble"]), bool(record["infra"])
        self.trouble_of = str(record.get("trouble_of", ""))
        self.trouble_kind = str(record.get("trouble_kind", ""))

    def _take_save(self, save: Record) -> None:
        """Keep a save if it is within bounds and there is room; an older shim may have
        recorded a save out of bounds. Otherwise count it as dropped."""
        if is_within(save) and self.has_room:
            self.saves.append(save)
        else:
            self.dropped += 1

    @property
    def has_room(self) -> bool:
        """Return whether there is room for one more save; saves are kept until the head
        has recorded them."""
        return len(self.saves) < MOST_SAVES

    def take_progress(self, message: Record, at: float, own: Container[int]) -> None:
        """Record a rank's progress as the newest of the attempt. Keep the rank's pace
        (its step and seconds) separately.

        `own`: the ranks of this node. Raises: OutOfBounds, KeyError.
        """
        ranks = {pace[0]: pace for pace in (self.progress or {}).get("ranks", ())}
        pace = pace_record(message)
        if pace[0] in own:
            ranks[pace[0]] = pace
        elif message.get("rank") is not None:
            raise OutOfBounds(
                f"a progress report is for rank {pace[0]}, which does not run on this node"
            )
        progress = progress_record(message, at)
        if progress["loss"] is not None or "loss" in self.scalars:
            self.scalars.take({"loss": progress["loss"]}, at)
        self.scalars.take(message.get("scalars"), at)
        self.progress = progress | {
            "ranks": [ranks[rank] for rank in sorted(ranks)],
            "scalars": self.scalars.records,
        }

    def take_steps(self, message: Record, at: float, ranks: Sequence[int]) -> None:
        """Record the steps that were counted in a process of a program that does not
        report its progress. A rank that has started several processes has made the
        steps of the slowest one.

        `ranks`: the ranks of this node. Raises: OutOfBounds, KeyError.
        """
        place = (
            integer("rank", message["rank"], least=0),
            integer("local_rank", message["local_rank"], least=0),
        )
        rank = place[0] if len(ranks) > 1 and place[0] in ranks else ranks[0]
        processes = self._counted.setdefault(rank, {})
        if place not in processes and len(processes) >= MOST_RANKS:
            raise OutOfBounds(f"rank {rank} counts steps in too many processes")
        counts = {name: message[name] for name in ("step", *COUNTED_SECONDS)}
        progress_record(counts, at)
        processes[place] = counts
        slowest = min(processes.values(), key=itemgetter("step"))
        self.take_progress({**slowest, "rank": rank}, at, ranks)

    def take_phase(self, message: Record, ranks: Container[int]) -> None:
        """Record the phase in which a rank says that it is; "" ends it.

        `ranks`: the ranks of this node. Raises: OutOfBounds, KeyError.
        """
        rank = integer("rank", message["rank"], least=0)
        phase = text("phase", message["phase"], letters=PHASE_LETTERS)
        if rank not in ranks:
            raise OutOfBounds(
                f"a phase is of rank {rank}, which does not run on this node"
            )
        if phase:
            self.declared[rank] = phase
        else:
            self.declared.pop(rank, None)

    def acknowledge(self, attempt: int, steps: Iterable[int]) -> None:
        """Remove the saves of this attempt that the head has recorded: they need no
        further report."""
        known_steps = set(steps)
        self.saves = [
            save
            for save in self.saves
            if save["quarantined"]
            or save["attempt"] != attempt
            or save["step"] not in known_steps
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
            "trouble_of": self.trouble_of,
            "trouble_kind": self.trouble_kind,
            "dropped": self.dropped,
            "declared": sorted(set(self.declared.values())),
            "waits_for_input": self.waits_for_input,
        }


def of_journal(records: Iterable[Record]) -> ShimState:
    state = ShimState()
    for record in records:
        state.take(record)
    return state


def save_record(message: Record, attempt: int, at: float) -> Record:
    """Return the journal's record of a save that a rank has sent. Raises: OutOfBounds,
    KeyError."""
    return {
        "type": "save",
        "attempt": integer("attempt", field(message, "attempt", attempt), least=1),
        "step": integer("step", message["step"], least=0),
        "path": text("path", message["path"], letters=PATH_LETTERS),
        "manifest_sha256": text(
            "manifest_sha256", field(message, "manifest_sha256", "")
        ),
        "size_bytes": integer("size_bytes", field(message, "size_bytes", 0), least=0),
        "seconds": number("seconds", field(message, "seconds", 0.0)),
        "stall_seconds": number("stall_seconds", field(message, "stall_seconds", 0.0)),
        "quarantined": cut(
            _text_or_empty(message.get("quarantined")), SENTENCE_LETTERS
        ),
        # the rank's clock, by which it prunes saves as well
        "at": number("at", field(message, "saved_at", at), most=MOST_MOMENT),
        "metrics": _metrics_of(message.get("metrics") or ()),
        "verified_at": None
        if message.get("verified_at") is None
        else number("verified_at", message["verified_at"], most=MOST_MOMENT),
        **({"reshards": False} if message.get("reshards") is False else {}),
    }


def _metrics_of(pairs: Iterable[Any]) -> list[list[Any]]:
    """Return the metrics of a save as pairs of a name and a value, at most MOST_SCALARS.
    Raises: OutOfBounds, TypeError, ValueError."""
    return [
        [
            text("metric", name, letters=SCALAR_LETTERS),
            number(name, value, most=MOST_LOSS),
        ]
        for name, value in list(pairs)[:MOST_SCALARS]
    ]


def progress_record(message: Record, at: float) -> Record:
    """Return the record of the newest progress, from a rank's message. A loss that is
    not finite counts as missing.

    Raises: OutOfBounds, KeyError.
    """
    target_step, rate, loss = (
        message.get(name) for name in ("until", "samples_per_second", "loss")
    )
    diverged = isinstance(loss, float) and not isfinite(loss)
    nan_since = message.get("nan_since")
    return {
        "step": integer("step", message["step"], least=0),
        "first_step": integer("first_step", field(message, "first_step", 0), least=0),
        "until": None if target_step is None else integer("until", target_step),
        "loss": None
        if loss is None or diverged
        else number("loss", loss, most=MOST_LOSS),
        "nan_since": None
        if nan_since is None
        else integer("nan_since", nan_since, least=0),
        "samples_per_second": None
        if rate is None
        else number("samples_per_second", rate),
        **{name: number(name, field(message, name, 0.0)) for name in SPENT},
        "memory_step": None
        if (memory_step := message.get("memory_step")) is None
        else integer("memory_step", memory_step, least=0),
        "at": number("at", at, most=MOST_MOMENT),
    }


def pace_record(message: Record) -> list[float]:
    """Return a rank's pace from its message: the rank, its step, and its seconds of
    loading data, of computation and of waiting. Raises: OutOfBounds, KeyError."""
    names = ("data_seconds", "compute_seconds", "wait_seconds")
    seconds = (number(name, field(message, name, 0.0)) for name in names)
    rank = integer("rank", field(message, "rank", 0), least=0)
    return [rank, integer("step", message["step"], least=0), *seconds]


def is_within(save: Record) -> bool:
    """Return whether a recorded save, possibly from an older shim, is within bounds."""
    try:
        save_record(save, save["attempt"], save["at"])
    except NOT_WITHIN:
        return False
    return True


def progress_within(record: Record | None) -> Record | None:
    """Return the progress that a shim, possibly an older version, has sent; None if it
    is out of bounds."""
    if not record:
        return None
    try:
        ranks = [
            pace_record(dict(zip(PACE, pace, strict=True)))
            for pace in record.get("ranks") or ()
        ]
        return progress_record(record, record["at"]) | {
            "ranks": ranks[:MOST_RANKS],
            "scalars": scalars_within(record.get("scalars")),
        }
    except NOT_WITHIN:
        return None


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


def _without_type(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "type"}
