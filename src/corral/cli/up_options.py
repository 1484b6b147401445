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
            help="File with one machine per line: HOST, USER@HOST or USER@HOST:PORT, "
            "and after it any options of corral join. Corral is installed on each machine "
            "over ssh, and the machine joins this cluster.",
        ),
    ] = None
    ssh_user: Annotated[
        UserName | None,
        Parameter(
            name="--ssh-user",
            help="User name for ssh on the machines of --hosts (default: as configured "
            "for ssh).",
        ),
    ] = None
    ssh_key: Annotated[
        Path | None,
        Parameter(
            name="--ssh-key",
            help="File with the private key for ssh (default: as configured for ssh).",
        ),
    ] = None
    python: Annotated[
        PathText | None,
        Parameter(
            name="--python",
            help="Path of a Python on the machines of --hosts in which Corral is "
            "already installed (default: Corral is installed there).",
        ),
    ] = None
