"""The Slurm engine: a batch engine that uses Slurm's commands or slurmrestd."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from corral.domain.engine_limit import EngineLimit
from corral.engines.batch.engine import HeadLinks, LendingEngine
from corral.engines.slurm.commands import Commands
from corral.engines.slurm.driver import SlurmDriver
from corral.engines.slurm.external_placement import SlurmPlacingDriver
from corral.engines.slurm.folders import Folders
from corral.engines.slurm.interface import Calls
from corral.engines.slurm.settings import SlurmSettings
from corral.engines.slurm.slurmrestd import Rest

NAME: Final = "slurm"
CANNOT_PLACED: Final[Mapping[str, EngineLimit]] = {
    "any_of": EngineLimit(
        reason="Slurm places the jobs of this cluster, and it accepts only one shape",
        hint="remove any_of from the spec",
    ),
    "elastic": EngineLimit(
        reason="Slurm places the jobs of this cluster, with a fixed number of nodes",
        hint="remove elastic from the spec",
    ),
    "place.apart_from": EngineLimit(
        reason="Slurm places the jobs of this cluster, and it cannot keep jobs apart",
        hint="remove apart_from from the spec",
    ),
    "place.topology.is_asked": EngineLimit(
        reason="Slurm places the jobs of this cluster, by its own topology",
        hint="remove topology from the spec",
    ),
}
LOOK_SECONDS: Final = 1.0
SHOWN_BY: Final = "sinfo -N -o '%N %P %c %m %G'"


def calls_of(settings: SlurmSettings) -> Calls:
    """Return the calls to Slurm: by slurmrestd if the settings give its address, else
    by Slurm's commands."""
    if settings.rest is None:
        return Commands(seconds=settings.command_seconds)
    return Rest(
        address=settings.rest,
        token_file=Path(settings.rest_token_file) if settings.rest_token_file else None,
        seconds=settings.command_seconds,
    )


def slurm_engine(
    cluster_dir: Path,
    given: Mapping[str, str],
    links: HeadLinks,
    *,
    shared: tuple[str, ...] = (),
    trusted: str | None = None,
) -> LendingEngine:
    """Return the engine of the cluster in this directory. `given`: the engine's
    settings as the user typed them.

    `shared`: paths that every node sees; `trusted`: the head's certificate, for its
    agents.
    Raises: SpecInvalid.
    """
    settings = SlurmSettings.read(given)
    root = Path(settings.folder or cluster_dir / NAME)
    make = SlurmPlacingDriver if settings.slurm_places else SlurmDriver
    driver = make(
        cluster=links.cluster,
        settings=settings,
        folders=Folders(root=root, head_file=cluster_dir / "head.json"),
        calls=calls_of(settings),
        shared=shared,
        hidden=tuple(dict.fromkeys((str(cluster_dir), str(root)))),
        trusted=trusted,
    )
    return LendingEngine(
        name=NAME,
        cannot=CANNOT_PLACED if settings.slurm_places else {},
        driver=driver,
        shown_by=SHOWN_BY,
        links=links,
        look_seconds=LOOK_SECONDS,
        placing_driver=driver if isinstance(driver, SlurmPlacingDriver) else None,
    )
