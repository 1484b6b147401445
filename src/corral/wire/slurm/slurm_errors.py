"""Errors in Slurm's words."""

USAGE = 255  # how Slurm ends on an option that it cannot read


class SlurmRefusal(ValueError):
    """`lines` are said one by one, each behind the command's name and `before` (None: as it is);
    `hint` is what to do instead."""

    def __init__(
        self, *lines: str, hint: str = "", code: int = 1, before: str | None = "error: "
    ) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.hint = hint
        self.code = code
        self.before = before
