"""The commands of checkpoints at the command line, with a real rank: list, show, pin,
remove, and go back."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from tests.scenarios.house import House, house, until

# A rank that speaks to its shim as corral.train does: it saves three times, and waits
# until it is to stop. A rank of a later attempt writes down what it may resume from.
SAVER: Final = """
import hashlib, json, os, pathlib, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["CORRAL_SOCKET"])
root = pathlib.Path(os.environ["CORRAL_CHECKPOINT_PATH"])
def say(**fields):
    link.sendall(json.dumps(fields).encode() + b"\\n")
say(type="hello", rank=0)
for step, loss in {7: 0.5, 14: 0.9, 21: 0.8}.items() if "[]" in os.environ["CORRAL_RESUME"] else ():
    folder = root / f"attempt-1/step-{step}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(data := f"save {step}".encode())
    say(type="save", step=step, attempt=1, path=str(folder), size_bytes=10, seconds=0.1,
        manifest_sha256=hashlib.sha256(data).hexdigest(), metrics=[["loss", loss]])
if "[]" not in os.environ["CORRAL_RESUME"]:
    (root / "resume.part").write_text(os.environ["CORRAL_RESUME"])
    (root / "resume.part").rename(root / "resume")
seen = b""
while b'"stop"' not in seen:
    seen += link.recv(4096)
sys.exit(75)
"""


def rows(here: House, id: str) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in here.answer("checkpoints", id)["checkpoints"]}


def resumed_from(path: Path) -> list[int]:
    until(path.exists, "the next attempt has begun")
    return [save["step"] for save in json.loads(path.read_text())]


def test_saves_are_listed_pinned_and_removed_and_a_job_goes_back_to_one() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        root = here.shared / "saves"
        keep = {"last": 2, "best": {"metric": "loss"}}
        rule = {"path": str(root), "keep": keep}
        run = shlex.join([sys.executable, "-c", SAVER])
        id = here.submit("cnn", run, checkpoint=rule, resources={"gpu": 1})
        until(lambda: len(rows(here, id)) == 3, "three saves are recorded")
        listed = here.ok("checkpoints", id)
        words = [line.split() for line in listed.splitlines()]
        (row,) = (line for line in words if line[:2] == ["7", "1"])
        assert "best" in row
        assert "loss 0.5" in listed

        here.ok("checkpoints", "pin", id, "14", "-y")
        until(lambda: "pinned" in rows(here, id)[14]["kept"], "it is pinned")
        shown = here.ok("checkpoints", "show", id, "14")
        assert "last, pinned" in shown
        assert "loss 0.9" in shown
        refused = here.corral("checkpoints", "export", id, "15", "out")
        assert refused.returncode != 0
        assert "there is no checkpoint of step '15'" in refused.stderr

        here.ok("checkpoints", "rm", id, "7", "-y")
        until(lambda: rows(here, id)[7]["retired"] == "removed", "it is removed")
        assert not (root / "attempt-1/step-7").exists()
        refused = here.corral("resume", id, "--step", "14", "-y")
        assert f"corral suspend {id}" in refused.stderr

        here.ok("suspend", id, "-y")
        until(lambda: here.job(id).state == "SUSPENDED", "it is suspended")
        here.ok("resume", id, "--step", "14", "-y")
        assert resumed_from(root / "resume") == [14]
        assert rows(here, id)[21]["retired"] == "passed-over"
