"""The helper process of a rank that hashes and copies the files of its saves."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.train.save import copy_program
from corral.train.save.copy_program import FileCopy, copy_files

TRIES: Final = 2
END_SECONDS: Final = 5.0


class CopyHelper:
    """A client of the copy program. One thread at a time may use it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the program; None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the program, if it does not run. Where it cannot be started, this
        process does the work."""
        if self._process is not None:
            return
        # -I: neither the user's modules nor start hooks
        words = [sys.executable, "-I", "-S", str(copy_program.__file__)]
        with suppress(OSError, ValueError):
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=str(Path("/")),
            )

    def copy(self, copies: Sequence[FileCopy]) -> list[str]:
        """Hash the files, copy those with a target durably, and return the SHA-256 of
        each. If the program ends meanwhile, it is started again, and at last this
        process does the work.

        Raises: OSError.
        """
        for _ in range(TRIES):
            self.start()
            if self._process is None:
                break
            try:
                return self._request(self._process, copies)
            except (EOFError, BrokenPipeError, json.JSONDecodeError):
                self.close()
        return copy_files(copies)

    def close(self) -> None:
        """End the program, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _request(
        self, process: "subprocess.Popen[str]", copies: Sequence[FileCopy]
    ) -> list[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(copies) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError("the copy program has ended")
        answer = json.loads(line)
        if "error" in answer:
            number, reason, path = answer["error"]
            raise OSError(number, reason, path or None)
        digests: list[str] = answer["sha256"]
        return digests
