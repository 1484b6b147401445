"""Options of Slurm's commands as data tables, and their parser. No I/O."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corral.wire.slurm.slurm_errors import USAGE, SlurmRefusal


class OptionUse(StrEnum):
    """Whether Corral honours, ignores or refuses an option of Slurm."""

    HONOURED = "honoured"
    NOTED = "ignored"
    REFUSED = "refused"


class Takes(StrEnum):
    """Whether an option takes a value: always, optionally or never."""

    VALUE = "value"
    MAYBE = "maybe"  # --exclusive, --exclusive=user
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a Slurm command. `says`: its effect in Corral, or why it is refused
    and what to use instead. `variable`: the environment variable that also sets the
    option. `adds`: if the option is repeated, the values are joined by commas."""

    name: str
    short: str = ""
    takes: Takes = Takes.VALUE
    use: OptionUse = OptionUse.HONOURED
    says: str = ""
    variable: str = ""
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOptions:
    """The given options with their last values ("" for an option without a value), and
    `rest`, the words after the options."""

    options: Mapping[str, str]
    rest: tuple[str, ...] = ()
    table: "OptionTable" = field(repr=False)

    def get(self, name: str) -> str | None:
        return self.options.get(name)

    def has(self, name: str) -> bool:
        return name in self.options

    @property
    def noted(self) -> list[str]:
        """Return the given options that have no effect in Corral."""
        return [
            option
            for option in self.options
            if self.table.by_name[option].use == OptionUse.NOTED
        ]


class OptionTable:
    """The options of one command."""

    def __init__(self, command: str, options: Iterable[Option]) -> None:
        self.command = command
        self.options: Final = tuple(options)
        self.by_name: Final = {option.name: option for option in self.options}
        self._by_letter = {
            option.short: option for option in self.options if option.short
        }

    def read(self, words: Sequence[str], *, mixed: bool = False) -> ParsedOptions:
        """Parse a command line. `mixed`: options may also follow other words.

        Raises: SlurmRefusal.
        """
        options_read: dict[str, str] = {}
        rest: list[str] = []
        words_left = list(words)
        while words_left:
            argument = words_left.pop(0)
            if argument == "--":
                rest += words_left
                break
            if argument.startswith("--"):
                self._parse_long_option(argument[2:], words_left, options_read)
            elif argument.startswith("-") and len(argument) > 1:
                self._parse_short_options(argument[1:], words_left, options_read)
            elif mixed:
                rest.append(argument)
            else:
                rest += [argument, *words_left]
                break
        return self.checked(options_read, rest)

    def checked(
        self, found: Mapping[str, str], rest: Sequence[str] = ()
    ) -> ParsedOptions:
        """Check that no given option is refused, and return the options in parsed form.

        Raises: SlurmRefusal for the first option that Corral refuses.
        """
        for name in found:
            option = self.by_name[name]
            if option.use == OptionUse.REFUSED:
                raise SlurmRefusal(
                    f"--{name} is not supported by Corral", hint=option.says
                )
        return ParsedOptions(options=dict(found), rest=tuple(rest), table=self)

    def usage(self) -> str:
        """Return the text of --help."""
        lines = [f"Usage: {self.command} [OPTIONS...]", ""]
        for option in self.options:
            written = (
                f"-{option.short}, --{option.name}"
                if option.short
                else f"    --{option.name}"
            )
            value = {Takes.VALUE: "=...", Takes.MAYBE: "[=...]", Takes.NOTHING: ""}[
                option.takes
            ]
            note = "" if option.use == OptionUse.HONOURED else f"[{option.use}] "
            lines.append(f"  {written + value:<30} {note}{option.says}".rstrip())
        return "\n".join(lines)

    def of_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the options of variables such as SBATCH_PARTITION."""
        return {
            option.name: ""
            if option.takes == Takes.NOTHING
            else environment[option.variable]
            for option in self.options
            if option.variable and option.variable in environment
        }

    def _parse_long_option(
        self, word: str, left: list[str], found: dict[str, str]
    ) -> None:
        name, sign, value = word.partition("=")
        option = self._named(name)
        if option.takes == Takes.NOTHING and sign:
            raise SlurmRefusal(
                f"option '--{option.name}' doesn't allow an argument",
                hint=self._help_text,
                code=USAGE,
                before="",
            )
        if option.takes == Takes.VALUE and not sign:
            value = self._next(left, f"option '--{option.name}' requires an argument")
        _store_option(found, option, value)

    def _named(self, name: str) -> Option:
        """Return the option of this name. An abbreviation is enough if only one option
        begins with it."""
        if name in self.by_name:
            return self.by_name[name]
        near = [
            option for option in self.options if name and option.name.startswith(name)
        ]
        if len(near) == 1:
            return near[0]
        if near:
            which = " ".join(f"'--{option.name}'" for option in near)
            raise SlurmRefusal(
                f"option '--{name}' is ambiguous; possibilities: {which}",
                hint=self._help_text,
                code=USAGE,
                before="",
            )
        raise SlurmRefusal(
            f"unrecognized option '--{name}'",
            hint=self._help_text,
            code=USAGE,
            before="",
        )

    def _parse_short_options(
        self, letters: str, left: list[str], found: dict[str, str]
    ) -> None:
        for letter_index, letter in enumerate(letters):
            option = self._by_letter.get(letter)
            if option is None:
                raise SlurmRefusal(
                    f"invalid option -- '{letter}'",
                    hint=self._help_text,
                    code=USAGE,
                    before="",
                )
            if option.takes == Takes.NOTHING:
                found[option.name] = ""
                continue
            value = letters[letter_index + 1 :].removeprefix("=")
            if not value and option.takes == Takes.VALUE:
                value = self._next(left, f"option requires an argument -- '{letter}'")
            _store_option(found, option, value)
            return

    def _next(self, left: list[str], why: str) -> str:
        if not left:
            raise SlurmRefusal(why, hint=self._help_text, code=USAGE, before="")
        return left.pop(0)

    @property
    def _help_text(self) -> str:
        return f'Try "{self.command} --help" for more information'


def _store_option(found: dict[str, str], option: Option, value: str) -> None:
    is_appended = option.adds and option.name in found
    found[option.name] = f"{found[option.name]},{value}" if is_appended else value


_NOT_A_SCRIPT: Final = (
    "This does not look like a batch script.  The first",
    "line must start with #! followed by the path to an interpreter.",
    "For instance: #!/bin/sh",
)


def words_of_script(script: str) -> list[list[str]]:
    """Return the words of the #SBATCH lines of a script, up to its first command. The
    words are grouped by component; `#SBATCH hetjob` separates the components of a
    heterogeneous job.

    Raises: SlurmRefusal if the text is no script.
    """
    lines = script.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise SlurmRefusal(*_NOT_A_SCRIPT)
    if "\r\n" in script:
        raise SlurmRefusal(
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        )
    components: list[list[str]] = [[]]
    for number, line in _directives(lines):
        line_arguments = _split_script_line(number, line)
        if line_arguments[:1] in (["hetjob"], ["packjob"]):
            components.append([])
        else:
            components[-1] += line_arguments
    return components


def _directives(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if line.startswith("#SBATCH"):
            yield number, line.removeprefix("#SBATCH")
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _split_script_line(number: int, line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        fault, hint = "a quotation mark is not closed", "add the closing quotation mark"
        if "escaped" in str(error):
            fault, hint = "nothing follows the last \\", "remove the last \\"
        raise SlurmRefusal(
            f"line {number} of the script: {fault}: #SBATCH{line.rstrip()[:80]}",
            hint=f"{hint} in line {number}",
        ) from None


def is_batch_script(text: str) -> bool:
    """Return whether the text is a batch script for sbatch: it begins with #! and has a
    #SBATCH line."""
    return text.startswith("#!") and any(
        splitline.startswith("#SBATCH") for splitline in text.splitlines()
    )
