"""Program of a rank in a chaos run: it runs for a while, and writes down what really
happened.

Standard library only, and copied beside the evidence: nodes start it hundreds of times.
Each file of evidence is one process; its lines are JSON, written with O_APPEND.
"""

import argparse
import hashlib
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

BEAT_SECONDS = 0.4
STEP_SECONDS = 0.25
STEPS_A_SAVE = 4
ASKED_TO_STOP = 75


class Evidence:
    """The evidence file of this process."""

    def __init__(self, folder: Path) -> None:
        env = os.environ
        rank = env.get("SLURM_PROCID") or env.get("RANK") or "0"
        self.attempt = int(env["CORRAL_ATTEMPT"])
        self._about = {
            "job": env["CORRAL_JOB_ID"],
            "attempt": self.attempt,
            "node": env["CORRAL_NODE"],
            "rank": int(rank),
            "gpus": [
                int(one)
                for one in env.get("CUDA_VISIBLE_DEVICES", "").split(",")
                if one
            ],
        }
        name = f"{env['CORRAL_JOB_ID']}.{self.attempt}.{rank}.{time.time_ns()}"
        flags = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        self._file = os.open(folder / f"{name}.jsonl", flags, 0o600)

    def begin(self, resumed_step: int = 0) -> None:
        self.write("begin", sync=True, resumed_step=resumed_step, **self._about)

    def write(self, what: str, *, sync: bool = False, **more: Any) -> None:
        line = json.dumps({"at": time.time(), "what": what, **more})
        os.write(self._file, line.encode() + b"\n")
        if sync:
            os.fsync(self._file)

    def end(self, code: int) -> None:
        """Announce the code, and exit with it."""
        self.write("end", sync=True, code=code)
        os._exit(code)


class Shim:
    """The line to the shim. Lost, it is dialled again; what was to be sent is kept."""

    def __init__(self, path: str) -> None:
        self.is_asked_to_stop = False
        self.committed: list[int] = []
        self._path = path
        self._line: socket.socket | None = None
        self._received = b""
        self._unsent: list[bytes] = []

    def send(self, **message: Any) -> None:
        self._unsent.append(json.dumps(message).encode() + b"\n")

    def wait(self, seconds: float) -> None:
        """Talk for so long; less once this attempt is asked to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.is_asked_to_stop:
            try:
                self._talk(left)
            except OSError:
                self._line = None
                time.sleep(min(left, 0.1))

    def _talk(self, seconds: float) -> None:
        if self._line is None:
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(2.0)
            folder = os.open(os.path.dirname(self._path), os.O_PATH | os.O_CLOEXEC)
            try:
                line.connect(f"/proc/self/fd/{folder}/{os.path.basename(self._path)}")
            finally:
                os.close(folder)
            line.sendall(json.dumps({"type": "hello", "rank": 0}).encode() + b"\n")
            self._line, self._received = line, b""
        while self._unsent:
            self._line.sendall(self._unsent[0])
            self._unsent.pop(0)
        if not select.select([self._line], [], [], seconds)[0]:
            return
        data = self._line.recv(65536)
        if not data:
            raise ConnectionResetError("the shim has hung up")
        *lines, self._received = (self._received + data).split(b"\n")
        for text in lines:
            message = json.loads(text)
            if message["type"] == "stop":
                self.is_asked_to_stop = True
            elif message["type"] == "committed":
                self.committed += [int(step) for step in message["steps"]]


def save(folder: Path, attempt: int, step: int) -> dict[str, Any]:
    """Write a save of this step durably. Return the message about it."""
    began = time.monotonic()
    place = folder / f"step-{step}.{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    data = str(step).encode()
    with (place / "step").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    for directory in (place, folder):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)
    took = time.monotonic() - began
    return {
        "type": "save",
        "attempt": attempt,
        "step": step,
        "path": str(place),
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
        "size_bytes": len(data),
        "seconds": took,
        "stall_seconds": took,
    }


def count(evidence: Evidence, steps: int, code: int) -> None:
    """Count steps with saves, from the save that this attempt was told to begin
    from."""
    told = json.loads(os.environ.get("CORRAL_RESUME") or "[]")
    step = int(told[0]["step"]) if told else 0
    if told and int((Path(told[0]["path"]) / "step").read_text()) != step:
        evidence.write(
            "wrong", text=f"the save at {told[0]['path']} is not of step {step}"
        )
    evidence.begin(resumed_step=step)
    folder = Path(os.environ["CORRAL_CHECKPOINT_PATH"])
    shim = Shim(os.environ["CORRAL_SOCKET"])
    known = 0
    while step < steps:
        shim.wait(STEP_SECONDS)
        step += not shim.is_asked_to_stop
        if step % STEPS_A_SAVE == 0 or shim.is_asked_to_stop:
            shim.send(**save(folder, evidence.attempt, step))
        evidence.write("step", step=step)
        if len(shim.committed) > known:
            known = len(shim.committed)
            evidence.write("committed", sync=True, step=max(shim.committed))
        if shim.is_asked_to_stop:
            evidence.write("stop")
            shim.is_asked_to_stop = False
            shim.wait(0.2)
            evidence.end(ASKED_TO_STOP)
    evidence.end(code)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("evidence", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--fails-before", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    asked = parser.parse_args()
    evidence = Evidence(asked.evidence)
    if asked.steps:
        # the shim's message says it as well
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        count(evidence, asked.steps, asked.code)

    def stop(*_: object) -> None:
        evidence.write("stop")
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    evidence.begin()
    until = time.monotonic() + asked.seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_SECONDS))
        evidence.write("beat")
    evidence.end(1 if evidence.attempt < asked.fails_before else asked.code)


if __name__ == "__main__":
    main()
