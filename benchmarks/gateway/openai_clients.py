"""The same calls with several versions of the package `openai`, unchanged, each in an
environment of its own.

    python -m venv V2 && V2/bin/pip install 'openai<3'
    python -m venv V3 && V3/bin/pip install 'openai>=3,<4'

Run: python -m benchmarks.gateway.openai_clients V2 V3 [--no-keep]
"""

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.gateway.test_openai_client import EXPECTED, outcomes_of

RESULTS: Final = Path(__file__).parent.parent / "results"


def report(results: list[dict[str, Any]], begin: datetime) -> str:
    versions = [result["version"] for result in results]
    lines = [
        "# Clients of OpenAI's API, unchanged",
        "",
        f"{begin:%Y-%m-%d %H:%M} UTC. Calls of `tests/gateway/openai_calls.py` through "
        "the gateway, before a mock engine.",
        "",
        "| call | " + " | ".join(f"openai {version}" for version in versions) + " |",
        "| --- |" + " --- |" * len(versions),
    ]
    for name, expected in EXPECTED.items():
        outcomes = [result["outcomes"][name] for result in results]
        cells = [
            "as expected" if outcome == expected else f"**{outcome}**"
            for outcome in outcomes
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venvs", type=Path, nargs="+")
    parser.add_argument("--no-keep", action="store_true", help="write no result")
    arguments = parser.parse_args()
    begin = datetime.now(UTC)
    results = [
        asyncio.run(outcomes_of(str(venv / "bin" / "python")))
        for venv in arguments.venvs
    ]
    text = report(results, begin)
    print(text)
    if not arguments.no_keep:
        path = RESULTS / f"gateway-openai-clients-{begin:%Y-%m-%d}.md"
        path.write_text(text)


if __name__ == "__main__":
    main()
