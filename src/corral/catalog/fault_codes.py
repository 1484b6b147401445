"""Meaning and repair of fault codes by GPU family: fault_codes.csv."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from corral.catalog.devices import device
from corral.catalog.facts import Fact, table
from corral.domain.errors import NotFound
from corral.domain.node_fault import Remedy, Restriction
from corral.domain.node_signal import SignalKind

RECOVERY: Final = "recovery"  # rows of what a driver names by itself (XID 154)


class JobConsequence(StrEnum):
    """Consequence of a fault for running jobs."""

    RUN_ON = "run-on"
    RESTART = "restart"  # those on that GPU
    RESTART_NODE = "restart-node"  # all that hold a GPU of the node


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCode:
    """Rule for a fault code on one GPU family: a row of fault_codes.csv.

    `an_hour`: number of signals within an hour that are needed before Corral acts.
    `clears_seconds`: the fault counts as over after this time without a signal; None:
    only a person or a passed check clears it. `settle_seconds`: time within which
    another code may arrive that changes the meaning of this one.
    """

    subject: str
    title: str
    remedy: Remedy
    restriction: Restriction
    jobs: JobConsequence
    is_caused_by_user: bool = False
    an_hour: int = 1
    clears_seconds: float | None = None
    settle_seconds: float = 0.0
    differs: str = ""
    because: str = ""


_RESTRICTIONS: Final[Mapping[Remedy, Restriction]] = {
    Remedy.IGNORE: Restriction.OPEN,
    Remedy.RESTART_APP: Restriction.OPEN,
    Remedy.CORDON: Restriction.CORDON,
    Remedy.DEEP_TEST: Restriction.CORDON,
}
_RESTARTS: Final = (Remedy.RESTART_APP, Remedy.RESET, Remedy.REBOOT, Remedy.RMA)


@cache
def rule_of(kind: SignalKind, code: int | None, family: str = "") -> FaultCode:
    """Return the rule for a fault code on a GPU of this family (`ampere`, `hopper`,
    `blackwell`, ...). A code that the table lacks gets the rule for other codes of its
    kind.

    Raises: KeyError for a kind of signal that the table lacks.
    """
    subject_by_code, fallback_subjects = _by_code()
    subject = subject_by_code.get((kind, code)) or fallback_subjects[kind]
    return _fault_code_from_row(subject, table("fault_codes")[subject], family)


@cache
def family_of(gpu_type: str) -> str:
    """Return the family of a GPU, found by any of its names; "" if the catalog does not
    know the GPU."""
    try:
        return device(gpu_type).architecture
    except NotFound:
        return ""


@cache
def named_by_driver(recovery: str) -> Remedy | None:
    """Return the repair that a driver's message requests, such as "GPU Reset Required";
    None if the message requests no known repair.

    If the message names several repairs, the most thorough one is returned.
    """
    message_text = recovery.lower()
    rows = [
        facts
        for facts in table("fault_codes").values()
        if facts["kind"].value == RECOVERY
    ]
    remedies = [
        Remedy(row["action"].value)
        for row in rows
        if row["title"].value in message_text
    ]
    return max(remedies, key=lambda remedy: remedy.rank, default=None)


def rules() -> tuple[FaultCode, ...]:
    """Return the rules of all fault codes, without the differences between GPU
    families."""
    rows = table("fault_codes").items()
    return tuple(
        _fault_code_from_row(name, row, "")
        for name, row in rows
        if row["kind"].value != RECOVERY
    )


def _fault_code_from_row(
    subject: str, row: Mapping[str, Fact], family: str
) -> FaultCode:
    def text(quantity: str, default: str = "") -> str:
        return row[quantity].value if quantity in row else default

    remedy = Remedy(text(f"action.{family}", text("action")))
    user = text("caused_by") == "user"
    restart = (
        JobConsequence.RESTART
        if remedy in _RESTARTS and not user
        else JobConsequence.RUN_ON
    )
    jobs = JobConsequence(text("jobs", restart))
    # what the row says of jobs is of its usual action
    is_other = f"action.{family}" in row
    return FaultCode(
        subject=subject,
        title=text("title"),
        remedy=remedy,
        restriction=Restriction(
            text("restriction", _RESTRICTIONS.get(remedy, Restriction.DRAIN))
        ),
        jobs=JobConsequence.RUN_ON if is_other else jobs,
        is_caused_by_user=user,
        an_hour=round(float(text("an_hour", "1"))),
        clears_seconds=float(text("clears")) * 3600.0 if "clears" in row else None,
        settle_seconds=float(text("settles", "0")),
        differs=text("differs"),
        because=text("because"),
    )


@cache
def _by_code() -> tuple[
    dict[tuple[SignalKind, int | None], str], dict[SignalKind, str]
]:
    """Return two mappings: from (kind of signal, code) to the row of the table, and
    from the kind to the row for all other codes."""
    subject_by_code: dict[tuple[SignalKind, int | None], str] = {}
    fallback_subjects: dict[SignalKind, str] = {}
    for subject, row in table("fault_codes").items():
        if row["kind"].value == RECOVERY:
            continue
        kind = SignalKind(row["kind"].value)
        if "codes" not in row:
            fallback_subjects[kind] = subject
        for code in codes_in(row["codes"].value) if "codes" in row else ():
            if (kind, code) in subject_by_code:
                raise ValueError(
                    f"{kind} {code} is in {subject_by_code[kind, code]} and in {subject}"
                )
            subject_by_code[kind, code] = subject
    for (kind, _), subject in subject_by_code.items():
        fallback_subjects.setdefault(kind, subject)
    return subject_by_code, fallback_subjects


def codes_in(text: str) -> tuple[int, ...]:
    """Parse fault codes: one code such as 48, a range such as 144-150, or several of
    both separated by spaces."""
    found_codes: list[int] = []
    for code_range in text.split():
        first_code, _, last_code = code_range.partition("-")
        found_codes += range(int(first_code), int(last_code or first_code) + 1)
    return tuple(found_codes)
