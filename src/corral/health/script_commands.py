"""Commands of a script that failed while the script continued: later failures may be a
consequence of them."""

import re
from dataclasses import dataclass
from typing import Final

from corral.domain.failure_class import FailureKind
from corral.health.pattern_form import shortened

ROWS: Final = 400  # of the end of a log that are searched

_MISSING: Final = re.compile(  # of bash, dash, zsh and busybox
    r"^\S{1,200}: (?:line )?\d{1,9}: (?P<bash>[^:]{1,99}): (?:command not found|not found"
    r"|No such file or directory)$|^(?P<zsh>zsh:\d{1,9}): command not found: (?P<name>\S{1,99})$"
    r"|^(?P<plain>[\w./-]{1,99}): (?:command )?not found$"
)
_ENVIRONMENTS: Final = re.compile(  # what makes modules and commands findable
    r"(?:^|/)(?:conda|mamba|micromamba|source|activate|conda\.sh|module|modules\.sh|ml|pyenv"
    r"|virtualenv|poetry|uv|pipenv|pip3?|spack|nvm|venv|pixi|\S{0,99}/bin/activate"
    r"|\S{0,99}/etc/profile(?:\.d/\S{1,60})?|\S{0,99}setup\.sh|\S{0,99}env\.sh)$"
)
_SOURCES: Final = re.compile(  # what brings or makes files
    r"(?:^|/)(?:wget|curl|aria2c|unzip|tar|gunzip|zstd|7z|aws|s3cmd|s5cmd|gsutil|gcloud|azcopy"
    r"|rclone|rsync|scp|git|git-lfs|huggingface-cli|hf|kaggle|gdown|dvc|make|cmake|ninja|gcc|g\+\+"
    r"|nvcc|cargo|go|npm|javac)$"
)
_NO_PACKAGE: Final = re.compile(
    r"^ERROR: (?:No matching distribution found|Could not find a version)|^PackagesNotFoundError"
)
_NOT_INSTALLED: Final = re.compile(
    r"^ERROR: (?:Failed building wheel|Failed to build|Could not install packages|Cannot install"
    r"|Could not open requirements file|Could not build wheels|pip's dependency resolver)"
    r"|^E: (?:Unable to locate package|Package )|^ResolvePackageNotFound"
    r"|^error: (?:externally-managed-environment|metadata-generation-failed)"
)
_TIMEOUT: Final = re.compile(
    r"(?:^|\s|/)timeout(?:\s{1,9}-\S{1,40}){0,6}\s{1,9}(?:[A-Z]{3,6} )?\d"
)
_NO_TABLE: Final = re.compile(r"\bno such table\b|\brelation \S{1,99} does not exist")
_NOT_OPENED: Final = re.compile(
    r"\b(?:unable to|cannot|can't|could not|failed to) open\b", re.IGNORECASE
)
_NOT_IMPORTED: Final = re.compile(
    r"\bNo module named |\bcannot import name |\b(?:could not|cannot|can't|failed to|unable to) "
    r"import |\bimport (?:of )?\S{1,80} failed|\b(?:Import|ModuleNotFound)Error\b"
    r"|^.{0,80}\b\w{1,40} (?:is )?not installed\b",
    re.IGNORECASE,
)
# the uses of None that may be of a module: a call, and a name in it
_NONE: Final = re.compile(
    r"^(?:TypeError: 'NoneType' object is not (?P<call>callable)"
    r"|AttributeError: 'NoneType' object has no attribute '(?P<name>\w{1,80})')"
)
_AFTER_ENVIRONMENTS: Final = frozenset({FailureKind.MODULE, FailureKind.COMMAND})
_AFTER_SOURCES: Final = frozenset(
    {FailureKind.FILES, FailureKind.DATA, FailureKind.COMMAND}
)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A command or other step of a script that failed earlier, with its class of
    failure."""

    line: str
    kind: FailureKind
    is_command: bool = True


def earlier_command(kind: FailureKind, text: str, quote: str) -> Earlier | None:
    """Return the first failed command that explains a later failure of this class; None
    without one.

    Args:
        text: the text of the log.
        quote: the lines that show the later failure.
    """
    if _NO_TABLE.search(quote) is not None:
        return _earlier_database(text)
    if (none_match := _NONE.match(quote)) is not None:
        return _earlier_import(text, none_match)
    if kind not in _AFTER_ENVIRONMENTS | _AFTER_SOURCES:
        return None
    for row in text.split("\n")[-ROWS:]:
        line = shortened(row.strip())
        if kind == FailureKind.MODULE and _NO_PACKAGE.match(line) is not None:
            return Earlier(line, FailureKind.PACKAGE)
        if kind == FailureKind.MODULE and _NOT_INSTALLED.match(line) is not None:
            return Earlier(line, FailureKind.MODULE)
        if (missing := _MISSING.match(line)) is None:
            continue
        name = missing["bash"] or missing["name"] or missing["plain"] or ""
        of_environment = kind in _AFTER_ENVIRONMENTS and _ENVIRONMENTS.search(name)
        if of_environment or (kind in _AFTER_SOURCES and _SOURCES.search(name)):
            return Earlier(line, FailureKind.COMMAND)
    return None


def is_missing_command(line: str) -> bool:
    """Return whether the line is a shell's report of a missing command."""
    return _MISSING.match(line) is not None


def _earlier_database(text: str) -> Earlier | None:
    """Return the log line that reports that a database could not be opened; None
    without one. The program then created an empty database instead."""
    for row in text.split("\n")[-ROWS:]:
        line = shortened(row.strip())
        if _NOT_OPENED.search(line) is not None:
            return Earlier(line, FailureKind.FILES, is_command=False)
    return None


def _earlier_import(text: str, used: "re.Match[str]") -> Earlier | None:
    """Return the failed import after which the program continued with None in place of
    the module. Return None if the None that it used (`used`) may have another origin.
    """
    lines = (shortened(row.strip()) for row in text.split("\n")[-ROWS:])
    failed = [line for line in lines if _NOT_IMPORTED.search(line) is not None]
    name = used["name"] or ""
    if name and not name[0].isupper():  # a class of a module, not a field of a value
        failed = [line for line in failed if name in line]
    return Earlier(failed[-1], FailureKind.MODULE, is_command=False) if failed else None


def is_of_timeout(line: str) -> bool:
    """Return whether the line is a shell's report that a process run by `timeout`
    ended."""
    return _TIMEOUT.search(line) is not None
