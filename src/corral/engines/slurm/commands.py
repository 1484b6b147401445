"""Slurm's commands, each bounded in time, and their environment, which is the same
however the head was started."""

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.bounds import cut
from corral.domain.errors import Unsupported
from corral.engines.slurm.interface import NEVER, SlurmTrouble
from corral.engines.slurm.jobs import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    SlurmJob,
    past_jobs,
    queued_jobs,
)
from corral.engines.slurm.nodes import SlurmNode, nodes_of

PASSED_ON: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
    "SLURM_CONF",
)
BOOK_SINCE: Final = "now-30days"
COMMAND_LETTERS: Final = 600  # of a command line that a hint shows
NO_CONTROLLER: Final = "Unable to contact slurm controller"  # Slurm's own words


def environment() -> dict[str, str]:
    """Return the part of the head's environment that Slurm's commands, and thus batch
    jobs, see."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | {"SLURM_TIME_FORMAT": "%s"}


@dataclass(slots=True, kw_only=True)
class Commands:
    """Implements `Calls` with Slurm's commands. `seconds` is the most time that one
    command may take."""

    seconds: float
    env: Mapping[str, str] = field(default_factory=environment)
    keeps_book: bool = True  # until Slurm says that it keeps none

    async def nodes(self) -> tuple[SlurmNode, ...]:
        return nodes_of(await self.text("scontrol", "-d", "-o", "show", "nodes"))

    async def queue(self, name: str = "") -> tuple[SlurmJob, ...]:
        name_option = (f"--name={name}",) if name else ()
        arguments = (
            "--noheader",
            "--array",
            "--states=all",
            "--me",
            *name_option,
            "-O",
            SQUEUE_FORMAT,
        )
        return queued_jobs(await self.text("squeue", *arguments))

    async def past(self, names: Sequence[str]) -> tuple[SlurmJob, ...]:
        if not self.keeps_book:
            return ()
        arguments = ("-n", "-P", "-X", "-S", BOOK_SINCE, f"--name={','.join(names)}")
        try:
            return past_jobs(await self.text("sacct", *arguments, "-o", SACCT_FORMAT))
        except SlurmTrouble as trouble:
            if "disabled" not in trouble.message:
                raise
            self.keeps_book = False
            return ()

    async def cancel(self, handles: Sequence[str]) -> None:
        await self.text("scancel", "--quiet", *handles)

    async def cancel_named(self, name: str) -> None:
        await self.text("scancel", "--quiet", f"--name={name}")

    async def close(self) -> None:
        """Do nothing: each command is a process of its own, so there is nothing to
        close."""

    async def text(self, *words: str) -> str:
        """Return the output of the command. Raises: SlurmTrouble."""
        code, output, errors = await self._run_command(words)
        if code != 0:
            raise SlurmTrouble(
                f"{words[0]} failed: {errors}",
                hint=f"run: {cut(shlex.join(words), COMMAND_LETTERS)}",
                is_silence=NO_CONTROLLER in errors,
            )
        return output

    async def submit(self, script: Path) -> str:
        """Submit the batch script. Returns: the job's id in Slurm.

        Raises: Unsupported when Slurm will never accept the script, SlurmTrouble when
        it cannot accept it now.
        """
        code, output, errors = await self._run_command(
            ("sbatch", "--parsable", str(script))
        )
        if code == 0:
            return output.strip().partition(";")[0]
        if any(phrase in errors for phrase in NEVER):
            raise Unsupported(
                f"Slurm does not accept the batch script: {errors}",
                hint=f"run: less {script}; sinfo",
            )
        raise SlurmTrouble(f"sbatch failed: {errors}", hint="run: sinfo")

    async def _run_command(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command. Return (exit code, output, the last line of its error output).
        Raises: SlurmTrouble."""
        try:
            running = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self.env,
                cwd="/",
            )
        except OSError as error:
            raise SlurmTrouble(
                f"{words[0]} cannot be run: {error.strerror}",
                hint="start the head on a machine where Slurm's commands are installed",
            ) from error
        try:
            async with asyncio.timeout(self.seconds):
                output, errors = await running.communicate()
        except TimeoutError:
            raise SlurmTrouble(
                f"{words[0]} did not answer within {self.seconds:g} s",
                hint="run: scontrol ping",
                is_silence=True,
            ) from None
        finally:
            if running.returncode is None:
                with suppress(ProcessLookupError):
                    running.kill()
                # `wait` alone hangs where a stream is paused
                await running.communicate()
        assert running.returncode is not None
        return running.returncode, output.decode(errors="replace"), _last_line(errors)


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1][:400] if lines else "no error message"
