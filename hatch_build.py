"""The build's own step: the pages are built from ui/ and go into the wheel.

Where Node or npm's registry cannot be had the wheel is made without them: the head then says how to
build them.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class Pages(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sources = ROOT / "ui" / "build.py"
        if self.target_name != "wheel" or not sources.exists():
            return
        made = runpy.run_path(str(sources))
        if made["main"]() != 0:
            print(
                "corral: installed without its pages; later: make ui", file=sys.stderr
            )
