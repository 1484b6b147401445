"""Writes the pages that are made from the code: run `make docs`; `make docs-check` compares.

docs/reference/cli.md from the command tree, docs/reference/states.md from domain/job_states.py,
docs/reference/errors.md from every error that has a code, docs/reference/codes.md from the enums of
reasons, events, receipts and warnings, docs/reference/slurm-options.md from the
tables of Slurm's options, docs/reference/health.md from those of fault codes and failures,
docs/reference/schema/*.json and docs/reference/openapi.json from the shapes that travel, and from
these the types of the pages (ui/).
"""

import argparse
import importlib
import inspect
import json
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent
HEADER: Final = (
    "<!-- Written by docs/generate.py: change the code, then run `make docs`. -->\n\n"
)


def cli_page() -> str:
    from corral.cli.main import build

    text = build().generate_docs(output_format="markdown")
    return HEADER + text.rstrip() + "\n"


def moves_page() -> str:
    """The diagram, then the whole table: every pair is a move, moot, or a bug."""
    from corral.domain.job_states import FINAL, MOOT, MOVES, JobEvent, JobState

    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for (
        state
    ) in JobState:  # in the order of the words: a frozenset within MOVES has none
        for event in JobEvent:
            if (state, event) in MOVES:
                arrows.setdefault((state, MOVES[state, event]), []).append(event)
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        "  [*] --> HELD: submitted, waits for another job",
    ]
    lines.append("  [*] --> QUEUED: submitted")
    lines += [
        f"  {one} --> {two}: {', '.join(events)}"
        for (one, two), events in arrows.items()
    ]
    lines += [f"  {state} --> [*]" for state in JobState if state in FINAL]
    lines += ["```", ""]
    lines += [
        "| event | " + " | ".join(JobState) + " |",
        "| --- |" + " --- |" * len(JobState),
    ]
    for event in JobEvent:
        cells = (
            MOVES.get((state, event), "·" if (state, event) in MOOT else "")
            for state in JobState
        )
        lines.append(f"| {event} | " + " | ".join(cells) + " |")
    about = (
        "# The moves of a job\n\nA cell names the state after the event; `·` is true but changes "
        "nothing; an empty cell cannot happen: it would be a bug, and the job is held with a "
        "replay file.\n\n"
    )
    return HEADER + about + "\n".join(lines) + "\n"


def errors_page() -> str:
    from corral.api.errors import STATUS
    from corral.domain.errors import Bug, CorralError, Refusal

    for module in pkgutil.walk_packages(
        importlib.import_module("corral").__path__, "corral."
    ):
        if not module.name.endswith("__main__"):
            _imported(module.name)
    rows = {}
    for kind in _below(CorralError):
        says = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        if issubclass(kind, Refusal):
            status, leaves = str(STATUS.get(kind.code, 400)), "3"
        else:
            bug = issubclass(kind, Bug)
            status, leaves = ("500", "70") if bug else ("503", "4")
        rows.setdefault(kind.code, f"| `{kind.code}` | {status} | {leaves} | {says} |")
    about = (
        "# Errors\n\nEvery error has a code that never changes, a message that says what was asked "
        'and what stands in the way, and a hint: `{"error": {"code", "message", "hint"}}`. The '
        "command line exits with 2 and `usage` for what it cannot read, with 1 when a job that it "
        "followed did not end well.\n\n| code | HTTP | exit | means |\n| --- | --- | --- | --- |\n"
    )
    return HEADER + about + "\n".join(rows[code] for code in sorted(rows)) + "\n"


def _imported(name: str) -> None:
    """Unless it needs an extra that is not installed here: no error is defined in such a module."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("corral"):
            raise


def _below(kind: type) -> Iterator[Any]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


def openapi() -> dict[str, Any]:
    """The API's own description, from an app that is never served."""
    from corral.api import ApiSettings, Channels, create_app
    from corral.boot.clock import SystemClock
    from corral.control import Control
    from corral.store.memory_store import MemoryStore

    class NoEngine:
        name = "none"
        restarts_in_place = False
        cannot: Mapping[str, str] = {}

        def observe(self) -> Mapping[Any, str]:
            return {}

        def apply(self, wanted: object) -> None:
            """Nobody listens."""

    class NoSeals:
        def seal(self, name: str, value: bytes) -> bytes:
            return value

        def open(self, name: str, sealed: bytes) -> bytes:
            return sealed

        def sign(self, text: str) -> str:
            return text

        def signatures(self, text: str, made_at: float = 0.0) -> list[str]:
            return [text]

    async def no_rotation(entry: object) -> None:
        """No key is there."""

    settings = ApiSettings(
        root=Path("/"), url="http://127.0.0.1", pid=0, started_at=0.0, version="1",
        seals=NoSeals(), stop=lambda: None, rotate=no_rotation,
    )  # fmt: skip
    control = Control(store=MemoryStore(), engine=NoEngine(), clock=SystemClock())
    app = create_app(control, channels=Channels(), settings=settings)
    return app.openapi()


def slurm_page() -> str:
    """What is written in parts/slurm.md, then each option, from the tables that read them."""
    from corral.wire.slurm.listing_options import (
        SACCT,
        SACCTMGR,
        SCANCEL,
        SINFO,
        SQUEUE,
        SSHARE,
    )
    from corral.wire.slurm.sbatch_options import JOB_OPTIONS, SBATCH, SRUN

    shared = {one.name for one in JOB_OPTIONS}
    parts = [(DOCS / "parts" / "slurm.md").read_text()]
    for table in (SBATCH, SRUN, SQUEUE, SINFO, SACCT, SCANCEL, SACCTMGR, SSHARE):
        rows = [
            "| option | | what comes of it | variable |",
            "| --- | --- | --- | --- |",
        ]
        for one in table.options:
            if table is SRUN and one.name in shared:
                continue
            written = (
                f"`-{one.short}`, `--{one.name}`" if one.short else f"`--{one.name}`"
            )
            variable = f"`{one.variable}`" if one.variable else ""
            says = one.says.replace("|", "\\|")
            rows.append(f"| {written} | {one.use} | {says} | {variable} |")
        also = (
            "\n\nBeside those of sbatch that ask for nodes and time:"
            if table is SRUN
            else ""
        )
        parts.append(f"## {table.command}{also}\n\n" + "\n".join(rows) + "\n")
    return HEADER + "\n".join(parts)


def pages() -> dict[Path, str]:
    from corral.wire import schemas

    makers: dict[str, Callable[[], str]] = {
        "reference/cli.md": cli_page,
        "reference/states.md": moves_page,
        "reference/errors.md": errors_page,
        "reference/codes.md": lambda: HEADER + importlib.import_module("codes").page(),
        "reference/slurm-options.md": slurm_page,
        "reference/health.md": lambda: (
            HEADER + importlib.import_module("health").health_page()
        ),
    }
    made = {DOCS / name: make() for name, make in makers.items()}
    described = openapi()
    made[DOCS / "reference" / "openapi.json"] = (
        json.dumps(described, indent=2, sort_keys=True) + "\n"
    )
    types = importlib.import_module("typescript").typescript(described)
    made[DOCS.parent / "ui" / "src" / "api" / "types.ts"] = types
    for name, schema in schemas().items():
        made[DOCS / "reference" / "schema" / f"{name}.json"] = (
            json.dumps(schema, indent=2, sort_keys=True) + "\n"
        )
    return made | deployed()


def deployed() -> dict[Path, str]:
    """What a Prometheus and a Grafana of one's own are given."""
    from corral.boot.monitoring import GatewayTargets, scrape_config
    from corral.boot.monitoring.config import RULES

    deploy = DOCS.parent / "deploy"
    of = runpy.run_path(str(deploy / "grafana" / "dashboards.py"))
    made = {
        deploy / "grafana" / f"{one.name}.json": of["written"](one) + "\n"
        for one in of["DASHBOARDS"]
    }
    made[deploy / "prometheus" / "rules.yml"] = RULES.read_text()
    made[deploy / "prometheus" / "prometheus.yml"] = scrape_config(
        "https://head.example:8443",
        token_file="/etc/prometheus/corral.token",
        rules_file="/etc/prometheus/corral.rules.yml",
        ca_file="/etc/prometheus/corral.ca.pem",
        gateways=GatewayTargets(
            urls=["http://gateway.example:8480"],
            token_file="/etc/prometheus/corral-gateway.token",
        ),
    )
    return made


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--check", action="store_true", help="compare, write nothing"
    )
    check = arguments.parse_args().check
    stale = 0
    for path, text in pages().items():
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(
                f"{path.relative_to(DOCS.parent)} is not what the code says: run make docs"
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
