"""docs/reference/health.md: what comes of each fault code and signal, and of each way to fail, as
the tables of the code have it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROSE: Final = Path(__file__).parent / "parts" / "health.md"
SIGNALS: Final = ("what", "means", "mended by", "keeps", "jobs", "others")
FAILURES_HEAD: Final = ("class", "it failed: ...", "pays", "what to do")


def health_page() -> str:
    from corral.domain.failure_class import FAILURES

    rows = [
        f"| `{kind}` | {meaning.text} | {'cluster' if meaning.is_infra else 'user'} "
        f"| {meaning.next.replace('|', '/').replace('{job}', 'JOB')} |"
        for kind, meaning in FAILURES.items()
    ]
    text = PROSE.read_text()
    text = text.replace("{signals}", "\n".join([*_head(SIGNALS), *_signals()]))
    return text.replace("{failures}", "\n".join([*_head(FAILURES_HEAD), *rows]))


def _head(names: tuple[str, ...]) -> list[str]:
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]


def _signals() -> Iterator[str]:
    from corral.catalog.facts import table
    from corral.catalog.fault_codes import rules

    rows = table("fault_codes")
    for rule in rules():
        row = rows[rule.subject]
        kind = row["kind"].value
        codes = (
            row["codes"].value
            if "codes" in row
            else "any other"
            if _has_codes(kind)
            else ""
        )
        special = [
            f"{name.removeprefix('action.')}: `{fact.value}`"
            for name, fact in row.items()
            if name.startswith("action.")
        ]
        mends = "; ".join([f"`{rule.remedy}`", *special])
        many = f", {rule.an_hour} in an hour" if rule.an_hour > 1 else ""
        others = "; here: ".join(one for one in (rule.differs, rule.because) if one)
        jobs = "its program's own" if rule.is_caused_by_user else rule.jobs
        yield (
            f"| {kind} {codes} | {rule.title}{many} | {mends} | {rule.restriction} "
            f"| {jobs} | {others.replace('|', '/')} |"
        )


def _has_codes(kind: str) -> bool:
    from corral.catalog.facts import table

    rows = table("fault_codes").values()
    return any("codes" in row for row in rows if row["kind"].value == kind)
