"""The head's log holds nothing secret."""

import json
import subprocess
import sys
from pathlib import Path

from corral.boot.head_log import HIDDEN, Redaction

SCRIPT = """
import logging, sys
from pathlib import Path
from corral.boot.head_log import configure
from corral.ports.log import HeadLogger
configure(Path(sys.argv[1])).hide("known-token-123456")
log = HeadLogger("corral.test")
log.info("asked", token="abc", path="/x?known-token-123456", by="ann")
logging.getLogger("library").warning("sent Authorization: Bearer abcdefghijk to %s", "head")
try:
    raise ValueError("known-token-123456 is wrong")
except ValueError:
    log.exception("failed")
"""


def test_tokens_reach_the_log_by_no_way(tmp_path: Path) -> None:
    file = tmp_path / "head.log"
    subprocess.run([sys.executable, "-c", SCRIPT, str(file)], check=True)
    text = file.read_text()
    asked, library, failed = [json.loads(line) for line in text.splitlines()]
    assert (asked["token"], asked["by"], asked["path"]) == (
        HIDDEN,
        "ann",
        f"/x?{HIDDEN}",
    )
    assert library["event"] == f"sent Authorization: Bearer {HIDDEN} to head"
    assert "ValueError" in failed["exception"]
    assert "known-token-123456" not in text
    assert file.stat().st_mode & 0o777 == 0o600


def test_telling_names_are_hidden_whatever_they_hold() -> None:
    entry = {"password": 1, "sealed": b"x", "api_token": "t", "node": "n1"}
    clean = Redaction()(entry)
    assert clean == {
        "password": HIDDEN,
        "sealed": HIDDEN,
        "api_token": HIDDEN,
        "node": "n1",
    }
