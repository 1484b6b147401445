"""The table of key bindings, from which the footer, the help and the bindings are made."""

from typing import Final, NamedTuple

from corral.cli.top.styled_text import Line, TextPart


class Key(NamedTuple):
    """One key binding. `keys`: textual's names of the keys; `shown`: the keys in the
    help text; `brief`: the text for the footer, "" if the key is not in the footer."""

    keys: str
    action: str
    shown: str
    brief: str
    help: str


TABLES: Final = (
    Key("1", "table('nodes')", "1", "", "nodes"),
    Key("2", "table('gpus')", "2", "", "GPUs"),
    Key("3", "table('jobs')", "3", "", "jobs"),
    Key("tab", "next_table", "Tab", "table", "the next of the three tables"),
    Key("up,k", "move(-1)", "Up Down", "", "the row above or below; also j and k"),
    Key("down,j", "move(1)", "", "", ""),
    Key("pageup", "page(-1)", "PgUp PgDn", "", "a screenful up or down"),
    Key("pagedown", "page(1)", "", "", ""),
    Key("home,g", "to(0)", "Home End", "", "the first row, or the last; also g and G"),
    Key("end,G", "to(1000000000)", "", "", ""),
    Key("s", "sort", "s", "sort", "sort by the next column"),
    Key("r", "turn", "r", "", "turn the order round"),
    Key(
        "slash",
        "filter",
        "/",
        "filter",
        "show only rows with what is typed; Esc ends it",
    ),
    Key(
        "f",
        "which",
        "f",
        "which",
        "which jobs: unfinished, on nodes, waiting, over, all",
    ),
    Key(
        "enter",
        "open",
        "Enter",
        "open",
        "open a job; of a node its GPUs, of a GPU its job",
    ),
    Key("c", "cancel", "c", "cancel", "cancel the chosen job, after a question"),
    Key("escape", "leave", "Esc", "", "back; take the filter away"),
    Key("question_mark", "help", "?", "help", "this page"),
    Key("q,ctrl+c", "quit", "q", "quit", "quit; also Ctrl-C"),
)
JOB: Final = (
    Key("c", "cancel", "c", "cancel", "cancel it, after a question"),
    Key("escape,enter", "leave", "Esc", "back", "back to the tables"),
    Key("question_mark", "help", "?", "help", "help"),
    Key("q", "quit", "q", "quit", "quit"),
)


def footer(keys: tuple[Key, ...], message: str) -> Line:
    """Return the message, then each key with its text."""
    text_parts = [TextPart(f"{message}  ", "dim")] if message else []
    for key in sorted(keys, key=lambda key: key.shown not in ("?", "q")):
        if key.brief:
            text_parts += [
                TextPart(key.shown, "title"),
                TextPart(f" {key.brief}  ", "dim"),
            ]
    return text_parts


def help_lines() -> list[Line]:
    about = (
        "GPUs of a node have a mark each: the higher, the busier; a dot is free, × lost,",
        "? silent, o held by a program that Corral has not started. Red is held but idle",
        "(below 5 %), yellow below one half. The head itself filters jobs, by a part of",
        "their name or their id, also those beyond what is listed.",
    )
    rows: list[Line] = [
        [TextPart(f"{key.shown:<11}", "title"), TextPart(key.help)]
        for key in TABLES
        if key.shown
    ]
    blank: list[Line] = [[]]
    return [*rows, *blank, *([TextPart(text, "dim")] for text in about)]
