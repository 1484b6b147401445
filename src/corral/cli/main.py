"""The command line `corral COMMAND`: this module parses the arguments, and each command
has its own module."""

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from corral import __version__
from corral.cli import error_output
from corral.cli.checkpoint_commands import CHECKPOINTS
from corral.cli.command import MORE
from corral.cli.command_tree import COMMANDS, GROUPS
from corral.cli.planner.counts import counted
from corral.domain.errors import CorralError

FULL: Final = (errno.ENOSPC, errno.EDQUOT)  # no room, for anybody or for this user
_NEGATIVE: Final = re.compile(r"-\d", re.ASCII)
_VALUED: Final = re.compile(r"=|^-\d", re.ASCII)
# what a group does without a word
ALONE: Final = {"queue": ["ps"], "doctor": ["doctor", "look"]}
# after which `corral checkpoints` does not list the checkpoints of a job
CHECKPOINT_WORDS: Final = frozenset(
    {
        "-h",
        "--help",
        *(
            word
            for command in CHECKPOINTS
            for word in (command.name.split()[1], command.alias)
        ),
    }
)
TOP: Final = [command for command in COMMANDS if " " not in command.name]
OTHER_WORDS: Final = {
    "exec": "corral attach JOB (it opens a shell next to a rank)",
    "ssh": "corral attach JOB (it opens a shell next to a rank)",
    "rm": "corral stop JOB",
    "kill": "corral stop JOB",
    "delete": "corral stop JOB",
    "requeue": "corral suspend JOB; corral resume JOB",
    "list": "corral ps; for nodes: corral node ls",
    "ls": "corral ps; for nodes: corral node ls",
    "get": "corral ps; for nodes: corral node ls",
    "jobs": "corral ps",
    "queues": "corral queue ls",
    "nodes": "corral node ls",
    "users": "corral user ls",
    "describe": "corral show JOB; for a node: corral node show NODE",
    "submit": "corral run -- CMD ..., or corral apply -f FILE",
    "create": "corral apply -f FILE",
    "launch": "corral run -- CMD ...",
    "log": "corral logs JOB",
    "tail": "corral logs -f JOB",
    "scale": "corral service scale NAME N; for a job: corral run --nodes MIN-MAX -- CMD",
    "services": "corral service ls",
    "deploy": "corral serve NAME --engine ENGINE --model MODEL, or corral apply -f FILE",
    "rollback": "corral service rollback NAME",
    "chat": "corral service chat NAME",
    "scp": "corral cp JOB:PATH .",
    "rsync": "corral cp JOB:PATH .",
}
HELP: Final = """Join GPU machines to one cluster, and run jobs on it.

Exit codes: 0 success, 1 the job failed, 2 the command line is not valid, 3 the
request was refused, 4 the cluster cannot be reached, 70 an error of Corral, 130
interrupted by Ctrl-C.
"""


def build(*, examples: bool = True) -> App:
    """Return the command tree. A command's module is imported when the command is
    called or its help is shown.

    Args:
        examples: append examples to the help of each command; only help needs them.
    """
    app = App(
        name="corral",
        help=HELP,
        version=__version__,
        version_flags=["--version"],
        help_format="plaintext",
        help_on_error=False,
    )
    for group, about in GROUPS.items():
        group_parameter = Parameter(converter=counted) if group == "plan" else None
        app.command(
            App(name=group, help=about, group=MORE, default_parameter=group_parameter)
        )
    help_of = {command.name: command.help for command in COMMANDS}
    if examples:
        # loaded for help alone
        from corral.cli.examples import with_examples
        from corral.cli.help_panels import FlowingFormatter, default_text

        app.help_formatter = FlowingFormatter()
        app.default_parameter = Parameter(show_default=default_text)
        help_of = {name: with_examples(name, text) for name, text in help_of.items()}
    for command in COMMANDS:
        *above, name = command.name.split()
        parent = app[above[0]] if above else app
        parent.command(
            f"corral.cli.{command.target}",
            name=name,
            alias=command.alias,
            help=help_of[command.name],
            show=command.show,
            **({} if above else {"group": command.heading}),
        )
    return app


def main() -> None:
    """Run one command and exit with its code."""
    sys.modules["h2"] = None  # type: ignore[assignment]  # no command needs HTTP/2: 30 ms to load
    code = run(sys.argv[1:])
    # a second Ctrl-C would end it in a traceback
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def with_script(words: Sequence[str]) -> list[str]:
    """Insert -- before a batch script in `corral run train.sbatch ARGUMENTS`, so that
    the arguments after the script belong to the script."""
    if list(words[:1]) != ["run"] or "--" in words:
        return list(words)
    for word_index, argument in enumerate(words):
        if word_index and os.path.isfile(argument):
            # commands need none of this
            from corral.cli.slurm.script_file import names_script

            if names_script(Path(argument)):
                return [*words[:word_index], "--", *words[word_index:]]
    return list(words)


def run(words: Sequence[str]) -> int:
    """Run one command line, and return its exit code; its output has been printed by
    then."""
    words = with_negatives(with_script(_expand_default_command(words)))
    own_words = list(words[: words.index("--")]) if "--" in words else list(words)
    as_json = "--json" in own_words
    try:
        if (
            own_words[:1] == ["run"]
            and own_words == list(words)
            and not {"--help", "-h"} & set(own_words)
        ):
            hint = "write: corral run [OPTIONS] -- CMD ..."
            raise error_output.Usage(
                "-- is missing before the command of the job; options of corral run "
                "stand before --, options of the command after it",
                hint=_usage_hint(own_words)
                if {"-f", "--file"} & set(own_words)
                else hint,
            )
        app = build(examples=bool({"--help", "-h"} & set(own_words)))
        code = app(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else error_output.DONE
    except CycloptsError as error:
        message, hint = _usage_text(error), _usage_hint(own_words)
        if (meant_command := other_word(own_words)) is not None:
            message, hint = (
                f"there is no command {own_words[0]}",
                f"run: {meant_command}",
            )
        error_output.tell("usage", message, hint, as_json=as_json)
        return error_output.USAGE
    except error_output.Usage as error:
        error_output.tell("usage", error.message, error.hint, as_json=as_json)
        return error_output.USAGE
    except CorralError as error:
        error_output.tell(
            error.code, error.message, error_output.hint_of(error), as_json=as_json
        )
        return error_output.exit_code_of(error)
    except BrokenPipeError:  # before OSError, which it is
        # else the exit complains of what is unwritten
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return error_output.DONE
    except OSError as error:
        if error.errno not in FULL:
            raise
        file_text = f" of {error.filename}" if error.filename else ""
        hint = "make room on the disk (see: df -h), then run the command again"
        error_output.tell(
            "disk_full", f"the disk{file_text} is full", hint, as_json=as_json
        )
        return error_output.UNREACHABLE
    except KeyboardInterrupt:
        return error_output.INTERRUPTED


def _usage_text(error: CycloptsError) -> str:
    """Return what is wrong with the command line, in one sentence."""
    argument = error.argument
    if not isinstance(error, MissingArgumentError) or argument is None:
        return str(error)
    name = error.keyword or argument.name
    command = " ".join(error.command_chain or ())
    if error.keyword is not None:
        return f"{name} needs a value after it"
    return f"{name} is missing after corral {command}"


def _expand_default_command(words: Sequence[str]) -> Sequence[str]:
    """Complete `queue` to `ps` and `doctor` to `doctor look`, if only options follow,
    and `checkpoints JOB` to `checkpoints ls JOB`.

    If another word follows, return the words unchanged: `queue WORD` is a command about
    queues, and `doctor WORD` runs one check.
    """
    rest = words[1:]
    if list(words[:1]) == ["checkpoints"] and rest and rest[0] not in CHECKPOINT_WORDS:
        return ["checkpoints", "ls", *rest]
    plain = not rest or (rest[0].startswith("-") and rest[0] not in ("-h", "--help"))
    alone = ALONE.get(words[0]) if words and plain else None
    return [*alone, *rest] if alone else words


def with_negatives(words: Sequence[str]) -> Sequence[str]:
    """Join an option and a negative value, as in `--time -5m`, so that the parser of
    the option checks the value. This is safe because no option begins with a digit."""
    joined_words: list[str] = []
    for word_index, argument in enumerate(words):
        if argument == "--":
            return [*joined_words, *words[word_index:]]
        previous_word = joined_words[-1] if joined_words else ""
        if (
            _NEGATIVE.match(argument)
            and previous_word.startswith("-")
            and not _VALUED.search(previous_word)
        ):
            joined_words[-1] = f"{previous_word}={argument}"
        else:
            joined_words.append(argument)
    return joined_words


def other_word(own: Sequence[str]) -> str | None:
    """Return the Corral command that corresponds to a command of another tool; None if
    the words are Corral's own or unknown."""
    is_known = (
        not own
        or own[0] in GROUPS
        or any(own[0] in (command.name, command.alias) for command in TOP)
    )
    return None if is_known else OTHER_WORDS.get(own[0])


def _usage_hint(own: Sequence[str]) -> str:
    """Return a hint for a command line that is not valid: the most likely command, or
    the help of the command that was recognised."""
    if own[:1] == ["apply"] and not {"-f", "--file"} & set(own):
        return f"write: corral apply -f {' '.join(own[1:2]).lstrip('-') or 'FILE'}"
    if own[:1] == ["run"] and {"-f", "--file"} & set(own):
        return "to submit a spec file, run: corral apply -f FILE --follow"
    known_words = {command.name for command in COMMANDS} | set(GROUPS)
    for length in (2, 1):
        if " ".join(own[:length]) in known_words:
            return f"run: corral {' '.join(own[:length])} --help"
    return "run: corral --help"
