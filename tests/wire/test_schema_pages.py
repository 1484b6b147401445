"""The published schemas keep up with the shapes."""

import json
from pathlib import Path

from corral.wire import schemas

PAGES = Path(__file__).parents[2] / "docs/reference/schema"


def test_every_schema_is_published_as_it_is() -> None:
    found = {path.stem: json.loads(path.read_text()) for path in PAGES.glob("*.json")}
    assert found == json.loads(json.dumps(schemas()))
