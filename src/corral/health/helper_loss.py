"""Loss of helper processes on the same node: workers of a DataLoader, pools, managers.

A program talks to them through local sockets and pipes. An error of such a connection
means that the helper ended, and never that the network failed.
"""

import re
from typing import Final

from corral.health.pattern_form import shortened
from corral.health.raised_errors import Raised

_LOCAL: Final = re.compile(
    r"(?:^|/)(?:multiprocessing|multiprocess|billiard)/(?:connection|resource_sharer"
    r"|reductions?|managers|queues|pool|popen_\w{1,20}|forkserver|synchronize):"
)
_LOST: Final = re.compile(
    r"^(?:\w{1,40}\.)?(?:ConnectionReset|ConnectionAborted|BrokenPipe|EOF)Error\b"
)
# where the helper had listened
_NOT_THERE: Final = re.compile(r"^(?:FileNotFound|ConnectionRefused)Error\b")
_SHARER: Final = '/resource_sharer.py", line'
_TRACEBACK: Final = "Traceback (most recent call last)"
_CHILD: Final = re.compile(r"^\s{0,9}Process [\w.-]{1,60}:$")
_KILLED_WORKER: Final = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? \d[\d, ]{0,60}\) is killed by signal: [\w ]{1,40}"
)
_CUT: Final = re.compile(
    r"^[^\n]{0,99}?\bobject repr {1,9}: ([^\n]{1,300})$", re.MULTILINE
)
_CUT_LOST: Final = re.compile(
    r"^(?:ConnectionReset|ConnectionAborted|ConnectionRefused|BrokenPipe|EOF)Error\("
)
_USES_HELPERS: Final = re.compile(
    r"/(?:multiprocessing/\w{1,40}|utils/data/dataloader)\.py\", line"
)


def is_helper_lost(raised: Raised, text: str = "") -> bool:
    """Return whether the error shows that a helper process on the same node ended.

    Args:
        text: the text of the log, for errors that only its other frames explain.
    """
    frame = raised.frame.replace(".py:", ":")
    if not frame or _LOCAL.search(frame) is None:
        return False
    if _LOST.match(raised.lines[0]) is not None:
        return True
    return _SHARER in text and _NOT_THERE.match(raised.lines[0]) is not None


def is_of_child(raised: Raised, text: str) -> bool:
    """Return whether a child process raised the error: multiprocessing names the
    process above the traceback."""
    above = text[: max(0, text.rfind(raised.lines[0]))].rpartition(_TRACEBACK)[0]
    return _CHILD.match(above.rstrip().rpartition("\n")[2]) is not None


def killed_worker(text: str) -> str:
    """Return the newest report that a worker of a DataLoader was killed; "" without
    one."""
    reports = _KILLED_WORKER.findall(text) if "DataLoader worker" in text else []
    return shortened(reports[-1].strip()) if reports else ""


def cut_error(text: str) -> str:
    """Return the error that Python was printing when it ended, as the interpreter
    dumps it; "" without such a dump."""
    dumps = _CUT.findall(text) if "object repr" in text else []
    return shortened(dumps[-1].strip()) if dumps else ""


def is_lost_connection(dump: str) -> bool:
    """Return whether the dumped error is about a lost connection."""
    return _CUT_LOST.match(dump) is not None


def uses_helpers(text: str) -> bool:
    """Return whether frames in the log show that the program waited for a helper."""
    return _USES_HELPERS.search(text) is not None
