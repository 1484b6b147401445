"""A machine whose driver is a file: a fake libnvidia-ml.so.1, and the words in which it
speaks."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.agent.telemetry.helper import SensorHelper
from corral.wire.node import NodeSettings
from tests.agent.bench import settings_in

SOURCE = Path(__file__).with_name("fake_nvml.c")


def compiled(folder: Path) -> Path:
    """The folder with the library in it."""
    library = folder / "libnvidia-ml.so.1"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)]
    subprocess.run([*words, f"-Wl,-soname,{library.name}"], check=True)
    return folder


@dataclass(slots=True)
class Machine:
    """`say` changes what the driver says from now on."""

    folder: Path
    library: Path
    settings: NodeSettings = field(init=False)
    words: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = settings_in(
            self.folder, pretend_gpus=None, kernel_log=str(self.folder / "kernel.log")
        )
        self.say()

    def say(self, **words: int) -> None:
        """`gpu0_use=50` is the line "0.use 50"; "__" stands for a dot."""
        self.words |= words
        lines = [f"{_key(word)} {value}\n" for word, value in self.words.items()]
        fresh = self.folder / "driver.fresh"
        fresh.write_text("".join(lines))
        fresh.rename(self.folder / "driver")

    def helper(self, **more: Any) -> SensorHelper:
        """A reader on this machine."""
        environment = (
            f"LD_LIBRARY_PATH={self.library}",
            f"FAKE_NVML={self.folder / 'driver'}",
        )
        reader = (sys.executable, "-m", "corral.agent.telemetry.reader")
        return SensorHelper(
            node_dir=self.folder, command=("env", *environment, *reader), **more
        )

    def log(self, line: str) -> None:
        """The kernel says this."""
        with (self.folder / "kernel.log").open("a") as opened:
            opened.write(f"{line}\n")
            os.fsync(opened.fileno())


def _key(word: str) -> str:
    name = word.replace("__", ".")
    return f"{name[3]}.{name[5:]}" if name.startswith("gpu") else name
