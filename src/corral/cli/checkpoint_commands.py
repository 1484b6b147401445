"""The commands below `corral checkpoints`."""

from typing import Final

from corral.cli.command import Command

CHECKPOINTS: Final = (
    Command("checkpoints ls", "checkpoints:ls", "List the checkpoints of a job."),
    Command("checkpoints show", "checkpoints:show", "Show one checkpoint of a job."),
    Command(
        "checkpoints compare",
        "checkpoints:compare",
        "Compare two checkpoints: settings, metrics and the model's layers.",
    ),
    Command(
        "checkpoints export",
        "checkpoints:export",
        "Write the model of a checkpoint into a folder of this machine.",
    ),
    Command(
        "checkpoints pin",
        "checkpoints:pin",
        "Pin a checkpoint: it stays on disk, whatever the job saves later.",
    ),
    Command(
        "checkpoints unpin",
        "checkpoints:unpin",
        "Unpin a checkpoint: it stays only as long as the job's rule keeps it.",
    ),
    Command(
        "checkpoints rm",
        "checkpoints:rm",
        "Remove a checkpoint and its files.\n\n"
        "The only checkpoint of an unfinished job is removed with --yes alone.",
        alias="remove",
    ),
)
