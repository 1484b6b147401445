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
            help="File with one machine a line, [USER@]HOST[:PORT] [OPTIONS]: Corral is "
            "installed on each over ssh, and the machine joins with the options of "
            "corral join that stand behind it.",
        ),
    ] = None
    ssh_user: Annotated[
        UserName | None,
        Parameter(name="--ssh-user", help="User to log in as (default: as ssh does)."),
    ] = None
    ssh_key: Annotated[
        Path | None,
        Parameter(
            name="--ssh-key", help="File with the ssh key (default: as ssh does)."
        ),
    ] = None
    python: Annotated[
        PathText | None,
        Parameter(
            name="--python",
            help="Python on the machines that has Corral already; nothing is installed then.",
        ),
    ] = None
