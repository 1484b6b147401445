"""Options of `corral up`: the settings of a cluster, and the machines that join it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.boot.declared_settings import SETTINGS
from corral.cli.option_types import PathText, UserName
from corral.cli.setting_options import with_options


@with_options(SETTINGS.values())
class SettingOptions:
    """Options of `corral up`, one for each setting of a cluster."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """Options for other machines that join over ssh."""

    hosts: Annotated[
        Path | None,
        Parameter(
            name="--hosts",
            help="A file with a machine a line, [USER@]HOST[:PORT]: Corral is installed there over "
            "ssh, and it joins. What stands behind it goes to corral join there.",
        ),
    ] = None
    ssh_user: Annotated[
        UserName | None,
        Parameter(name="--ssh-user", help="Whom to be on those machines."),
    ] = None
    ssh_key: Annotated[
        Path | None,
        Parameter(name="--ssh-key", help="The key to show there (that of ssh)."),
    ] = None
    python: Annotated[
        PathText | None,
        Parameter(
            name="--python",
            help="A Python there that has Corral already: then nothing is installed.",
        ),
    ] = None
