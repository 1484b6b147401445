"""Errors in Slurm's words."""

USAGE = 255  # how Slurm ends on an option that it cannot read


class SlurmRefusal(ValueError):
    """A refusal in Slurm's words.

    `lines` are printed one by one, each after the command's name and `before` (None:
    unchanged). `hint` describes an alternative.
    """

    def __init__(
        self, *lines: str, hint: str = "", code: int = 1, before: str | None = "error: "
    ) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.hint = hint
        self.code = code
        self.before = before
