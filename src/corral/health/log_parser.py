"""Parser of the end of a rank's log, which separates raised errors from other lines.

Programs print one error in many forms. It can follow the name of a rank, an actor or a
logger, or stand in a box. It can span several lines, or be a cause within a chain. The
launcher that lost its worker can print it again.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from corral.domain.diagnosis import GAP
from corral.domain.failure_advice import NextStep
from corral.health.error_blocks import is_chatter, sentence
from corral.health.labels import is_shared, without_labels
from corral.health.launcher_words import is_around, is_report
from corral.health.pattern_form import LINE_CHARACTERS, shortened
from corral.health.raised_errors import (
    Raised,
    is_of_wrapper,
    outside_tracebacks,
    place_of_dump,
    raised_in,
    without_late_threads,
)

PARTING_WORDS: Final = 4
LAST_LINES: Final = 15
ENDING_LINES: Final = 2  # quoted where no line is an error
FRESH_LINES: Final = 8  # an error this close to the end was the last output
MOST_RAISED: Final = 50  # the newest; older ones add nothing

_COLOURS: Final = re.compile(
    r"\x1b(\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9])"
)
_SIDES: Final = "│┃|"  # of a box around a line
_RIMS: Final = frozenset("╭╰┏┗─━╮╯┓┛")
# of exceptions
_GROUP: Final = re.compile(r"^ {2,40}(?:\+-\+-+.{0,40}-{4,}$|\+-{8,}$|[|+] )")
_DRESS: Final = re.compile(
    r"(?:\[[A-Za-z_]{0,30}\d{1,5}\]:\s?"  # torch, torchrun
    r"|\[\d{1,5},\d{1,5}\]<std(?:out|err)>:\s?"  # mpirun, horovodrun
    r"|\((?:[\w.:-]+ )?(?:pid|rank)=\d+[^)]*\)\s?"  # Ray, vLLM
    r"|(?<!ERROR )\d{1,5}: (?=\S)"  # srun --label
    r"|(?:ERROR|CRITICAL|FATAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\]\s?"  # vLLM's logger
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?[ :]+(?:- )?"
    r"(?:[\w.]+ - )?(?:\[?(?:ERROR|CRITICAL|FATAL)\]?[ :-]+)?)"
)
# A carriage return that a shell or a loader prints as the end of a name: of a file with
# CRLF.
LINE_END: Final = re.compile(r"\r(?=['’\"]?: [a-zA-Z])|(?<=Illegal option -)\r")
_CURRENT: Final = "\nCurrent thread 0x"
_LEVEL: Final = re.compile(r"\b(?:ERROR|(CRITICAL|FATAL))\b")
_LAST_WORDS: Final = re.compile(  # of a program that is about to end itself
    r"\b(?:CRITICAL|FATAL)\b|\b[Ww]atchdog\b.{0,200}\b(?:[Kk]ill\w*|no|stuck|hung|stall\w*|missed"
    r"|expired|timed out|dead|abort\w*|terminat\w*|exceed\w*)\b|\b[Ss]ending SIGKILL\b"
    r"|\b[Kk]illing (?:(?:the |this |own |my)?(?:process|run|job|program|rank|self)"
    r"|itself|myself)\b"
)
_DUMP: Final = re.compile(  # of an error that Python could not print
    r"^.{0,99}?\bobject (?:address|refcount|type|type name|repr) {0,9}: |^lost sys\.stderr$"
)
_CAUSES: Final = re.compile(
    r"^Caused by:\n((?:[ \t]{2,20}\S[^\n]{0,500}\n?){1,20})", re.MULTILINE
)
_ORDINAL: Final = re.compile(r"^\d{1,3}: ")
_WORKER_SIGNAL: Final = re.compile(
    r"\bSignal \d{1,2} \(SIG\w{1,9}\) received by PID \d{1,9}|\bfailed \(exitcode: -\d{1,2}\)"
    r" local_rank: \d{1,9}|\bprocess rank \d{1,9} with PID \d{1,9} on node \S{1,99} exited on"
    r" signal \d{1,2}(?: \([A-Z][\w ]{1,30}\))?"
)
_ESCAPED: Final = r"Traceback (most recent call last):\n"
_IN_JSON: Final = re.compile(re.escape(_ESCAPED) + r'(?:[^"\\\n]|\\.){1,4000}')
_UNREAD: Final = re.compile(
    r'^ {2}File "([^"\n]{1,300})", line (\d{1,9})\n {4}(\S[^\n]{0,300})\n(?:[ ^~]{1,300}\n)?'
    r"(?:SyntaxError|IndentationError|TabError): ",
    re.MULTILINE,
)
_UNJOINED: Final = "terminate called without an active exception"
_ASSERTED: Final = re.compile(
    r"\bAssertion `.{1,200}' ?failed|\bAssertion `.{1,200}` failed"
)
# lines by which a launcher or a build tool repeats that one failed
_WRAPPERS: Final = re.compile(
    r"^make(?:\[\d{1,3}\])?: \*\*\* \[.{1,200}\] Error \d|^ninja: build stopped|^collect2: error: "
    r"|^npm (?:ERR!|error)(?:$| A complete log| code | errno | To see |  )|^Execution halted"
    r"|^error: could not compile|^error: aborting due to|Aborting\.{0,3}$"
    r"|^==\d{1,9}==\s?ABORTING|^srun: error: .{1,99}: task|^note: |^For more information"
    r"|is not recoverable: exiting now$|Configuring incomplete, errors occurred|^FAILED: \S+\.o\b"
    r"|\b(?:exit(?:ed|s)?|fail(?:ed|s)?|terminated|returned?|errored)\b.{0,40}\b(?:code|status)\b\W{0,3}-?\d"
    r"|^BUILD FAILED|^Build failed|Look above for error message",
)
_NUMBERS: Final = re.compile(r"\d+")
_WORDS: Final = re.compile(r"\b[A-Za-z]{2,30}\b")
_WORK: Final = re.compile(  # words of lines that tell of work
    r"\b(?:step|epoch|iter\w*|batch \d+(?: |/)|loss|load(?:ing|ed)|sav(?:ing|ed)|start\w*|done"
    r"|finish\w*|complet\w*|runn?ing|reading|writing|using|waiting|listening|created?|received"
    r"|downloading|building|processing|training|giving)\b|it/s|%|\.\.\.$",
    re.IGNORECASE,
)
_REASON: Final = re.compile(  # words that show that a program cannot continue
    r"\b(?:no|not|none|nothing|never|missing|must|needs?|requires?d?|expect(?:s|ed)|only|without"
    r"|empty|should|please|too|wrong|bad|mismatch\w*|den(?:y|ied)|exceed\w*|less|more|fewer|lower"
    r"|differ\w*|unknown|unsupported|outside|out of|bye|quit\w*|stopp\w*|exit\w*|end(?:s|ed|ing)?"
    r"|problem|violat\w*|broken|lost|expired|corrupt\w*|stale|already|\w{1,30}n't|un\w{2,30}(?:ed|ble))\b",
    re.IGNORECASE,
)
_HINTS: Final = re.compile(  # lines with advice, below the line with the failure
    r"^\W{0,4}(?:To (?!\S{1,30} (?:failed|could))|[Hh]int\b|HINT\b|Please |See |For more|Try |Use "
    r"|You (?:may|can) )"
)
_STATED: Final = re.compile(
    r"^\W{0,3}(?:FATAL|CRITICAL|ERROR)\b|^\S{1,80}: fatal: |^fatal: ", re.IGNORECASE
)
# "error:" and "fatal error:" of the languages that programs are localized to
_LEVELS: Final = (
    r"^\W{0,3}(?:\S{1,40}: )?(?:Schwerer |Schwerwiegender |Interner )?(?:Fehler|Ausnahme"
    r"|Erreur(?: \w{1,12})?|Errore(?: \w{1,12})?|Erro(?: \w{1,12})?|Fout|Fel|Feil|Fejl|Virhe|Błąd"
    r"|Chyba|Hiba|Hata|Eroare|Грешка|Σφάλμα|Ошибка|Помилка|שגיאה|خطأ|त्रुटि|ข้อผิดพลาด|Lỗi|Kesalahan"
    r"|(?:严重|致命|嚴重)?(?:错误|錯誤|异常|異常)|(?:致命的)?エラー|오류|에러) ?[::!-]"
)
_WARNS: Final = re.compile(r"\bWARNING\b|Warning:|^warn(ing)?\b", re.IGNORECASE)
_SHAPED: Final = re.compile(  # a line in which a program reports a failure
    r"\b(error|errors|exception|fatal|panic|panicked|failed|failure|abort(ed|ing)?|cannot|"
    r"could not|unable to|invalid|traceback|refus(ed|ing)|not found|giving up|no such|unbound)\b|"
    r'\w(Error|Exception)\b|\*\*\* |^E\d{4} |\bERR!|"level": ?[56]0\b|' + _LEVELS,
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Printed:
    """The end of a log.

    Args:
        raised: the raised errors, the oldest first.
        last: the last lines, the newest last.
        warnings: those of the last lines that are warnings.
        chatter: those of the last lines that programs print while they continue.
        levelled: lines that a logger had prefixed with the level of an error.
        critical: those of them with the level CRITICAL or FATAL.
        is_shared: several processes have printed the errors.
    """

    text: str
    raised: tuple[Raised, ...]
    last: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    chatter: tuple[str, ...] = ()
    levelled: frozenset[str] = frozenset()
    critical: frozenset[str] = frozenset()
    is_shared: bool = False

    @property
    def ends_raising(self) -> bool:
        """Return whether the last output was an error raised by the program."""
        newest_lines = [raised.lines[0] for raised in self._own[-1:]]
        return any(line in newest_lines for line in self.last[-FRESH_LINES:])

    @property
    def ends_caught(self) -> bool:
        """Return whether the last output is an error that a language runtime caught;
        such an error does not itself abort the process."""
        return self.ends_raising and self._own[-1].step not in (
            NextStep.CPP,
            NextStep.ABORTED,
        )

    @property
    def _own(self) -> tuple[Raised, ...]:
        return tuple(raised for raised in self.raised if not raised.is_wrapper)

    @property
    def ends_by_threads(self) -> bool:
        """Whether a C++ thread that still ran aborted the process."""
        return any(_UNJOINED in line for line in self.last[-FRESH_LINES:])

    @property
    def newest(self) -> str:
        """The lines of the errors in the newest chain; if no error was raised, the last
        lines."""
        chain = [
            raised for raised in self.raised if raised.chain == self.raised[-1].chain
        ]
        return "\n".join(
            line for raised in chain for line in raised.lines
        ) or "\n".join(self.last[-FRESH_LINES:])

    @property
    def complaint(self) -> str:
        """The last line that has the shape of an error, in whatever language; "" for
        none."""
        return _complaint_in(self.last, self.levelled)

    @property
    def last_error(self) -> int:
        """Index in `last` of the last line that looks like an error; -1 if no line
        does."""
        shaped = [
            line_index
            for line_index, line in enumerate(self.last)
            if _SHAPED.search(line)
        ]
        return next(
            (
                line_index
                for line_index in reversed(shaped)
                if not _is_wrapper(self.last[line_index])
            ),
            -1,
        )

    @property
    def is_stated(self) -> bool:
        """Return whether the last line that looks like an error also contains a log
        level of errors."""
        return _STATED.search(self.complaint) is not None

    @property
    def parting(self) -> str:
        """The last line if it reads as a reason for the end; otherwise "". Such a line
        is a sentence whose form no earlier line has, and it does not only report the
        program's work."""
        last_line = self.last[-1] if self.last else ""
        shapes = Counter(
            _NUMBERS.sub("0", _strip_and_shorten(row)) for row in self.text.split("\n")
        )
        is_alone = shapes[_NUMBERS.sub("0", last_line)] == 1
        word_count = len(_WORDS.findall(last_line))
        is_sentence = word_count >= PARTING_WORDS and _WORK.search(last_line) is None
        is_sentence = is_sentence and _REASON.search(last_line) is not None
        return last_line if is_sentence and is_alone else ""

    @property
    def crashed_at(self) -> str:
        """The place in Python where the program crashed, as printed by faulthandler; ""
        if faulthandler is off."""
        begin = self.text.rfind(_CURRENT)
        return place_of_dump(self.text[begin:].split("\n")[2:]) if begin >= 0 else ""

    @property
    def listed_cause(self) -> str:
        """The last cause in the list below an error, as Rust's anyhow prints it; "" if
        there is no such list."""
        match = _CAUSES.search(self.text)
        rows = match[1].rstrip().split("\n") if match is not None else [""]
        return _strip_and_shorten(_ORDINAL.sub("", rows[-1].strip()))

    @property
    def unread(self) -> tuple[str, str]:
        """Place and source line of the last syntax error that Python's parser reported;
        ("", "") without one."""
        matches = list(_UNREAD.finditer(self.text))
        return (
            (f"{matches[-1][1]}:{matches[-1][2]}", _strip_and_shorten(matches[-1][3]))
            if matches
            else ("", "")
        )

    @property
    def told_by_launcher(self) -> str:
        """Last line in which torchrun reports a worker's signal; "" without such a
        line."""
        signal_lines = [match[0] for match in _WORKER_SIGNAL.finditer(self.text)]
        return _strip_and_shorten(signal_lines[-1]) if signal_lines else ""

    @property
    def last_words(self) -> str:
        """The last line, if the program says in it why it ends itself; else ""."""
        row = self.text.rstrip().rpartition("\n")[2]
        line = _strip_and_shorten(row)
        return line if line in self.critical or _LAST_WORDS.search(line) else ""

    def line_before(self, line: str) -> str:
        """Return the last line with words before `line`; "" without one."""
        preceding_rows = self.text[: max(0, self.text.rfind(line))].split("\n")
        return next(
            (
                _strip_and_shorten(row)
                for row in reversed(preceding_rows)
                if _WORDS.search(row) and not is_around(row[:LINE_CHARACTERS])
            ),
            "",
        )

    @property
    def ending(self) -> str:
        """The last lines joined, for a log in which no line is an error; "" for an
        empty log."""
        lines = self.last or self.warnings or self.chatter
        return " / ".join(lines[-ENDING_LINES:])

    @property
    def assertion(self) -> str:
        """The last check of a kernel or of C that failed; "" for none."""
        rows = (row for row in reversed(self.text.split("\n")) if "Assertion" in row)
        return next(
            (
                _strip_and_shorten(row)
                for row in rows
                if _ASSERTED.search(row[:LINE_CHARACTERS])
            ),
            "",
        )


@lru_cache(maxsize=256)
def _complaint_in(last: tuple[str, ...], levelled: frozenset[str]) -> str:
    shaped = [
        line_index
        for line_index, line in enumerate(last)
        if line in levelled or _SHAPED.search(line)
    ]
    own_places = [
        line_index
        for line_index in shaped
        if not _is_wrapper(last[line_index]) and not _HINTS.match(last[line_index])
    ]
    return next(
        (sentence(last, line_index) for line_index in reversed(own_places or shaped)),
        "",
    )


def _is_wrapper(line: str) -> bool:
    return _WRAPPERS.search(line) is not None or is_of_wrapper(line) or is_report(line)


# a failed attempt is looked at again and again until it is over
@lru_cache(maxsize=256)
def printed(tail: str) -> Printed:
    labelled_rows = _rows_of(tail)
    rows = without_labels(labelled_rows)
    bare = [_undressed(row) for row in rows]
    levels = {
        _strip_and_shorten(inner): level[1]
        for row, inner in zip(rows, bare, strict=True)
        if len(inner) < len(row)
        and (level := _LEVEL.search(row[: len(row) - len(inner)])) is not None
    }
    critical = frozenset(line for line, is_critical in levels.items() if is_critical)
    text = "\n".join(bare)
    told = without_dumps(text)
    raised = without_late_threads(tuple(raised_in(told))[-MOST_RAISED:])
    last_lines, warnings, chatter = _last_lines(told)
    return Printed(
        text,
        raised,
        last_lines,
        warnings,
        chatter,
        frozenset(levels),
        critical,
        is_shared(labelled_rows),
    )


def without_dumps(text: str) -> str:
    """Return the text without the rows in which Python dumps an error that it could not
    print."""
    if "lost sys.stderr" not in text and "object repr" not in text:
        return text
    return "\n".join(row for row in text.split("\n") if _DUMP.match(row) is None)


def _last_lines(text: str) -> tuple[tuple[str, ...], ...]:
    """Return three groups of lines from the end of the text: the lines without warnings
    and chatter, the warnings, and the chatter. Chatter is what programs print while
    they continue."""
    rows = [
        _strip_and_shorten(row)
        for row in outside_tracebacks(text.split("\n"))
        if row.strip()
    ]
    lines: list[str] = []
    chatter: list[str] = []
    for row in reversed(rows):
        if len(lines) == LAST_LINES:
            break
        is_aside = is_chatter(row) or is_around(row[:LINE_CHARACTERS])
        (chatter if is_aside else lines).append(row)
    lines.reverse()
    plain_lines = tuple(line for line in lines if not _WARNS.search(line))
    warnings = tuple(line for line in lines if _WARNS.search(line))
    return plain_lines, warnings, tuple(reversed(chatter[:LAST_LINES]))


def parted(tail: str) -> tuple[str, str]:
    """Split a long log at the gap where lines were left out. Return the text before the
    gap, with its last error, and the text after it; ("", tail) if there is no gap."""
    earlier, gap, log_end = tail.rpartition(GAP)
    return (earlier, log_end) if gap else ("", tail)


def _rows_of(tail: str) -> list[str]:
    """Return the rows of the log without terminal control codes, and without rows that
    Corral itself wrote."""
    tail = _IN_JSON.sub(_out_of_json, tail) if _ESCAPED in tail else tail
    tail = LINE_END.sub(r"\\r", _COLOURS.sub("", tail))
    rows = tail.replace("\r", "\n").split("\n")
    return [_replace_unprintable(row) for row in rows if not row.startswith("[corral]")]


def _out_of_json(found: "re.Match[str]") -> str:
    """Return the matched JSON string, in which a logger wrote a traceback, as separate
    rows."""
    return "\n" + found[0].replace("\\n", "\n").replace('\\"', '"') + "\n"


def _replace_unprintable(row: str) -> str:
    return (
        row
        if row.isprintable()
        else "".join(c if c.isprintable() else " " for c in row)
    )


def _undressed(row: str) -> str:
    inner, text_start = row.strip(), 0
    if (group := _GROUP.match(row)) is not None:
        return row[group.end() :]
    if len(inner) > 1 and inner[0] in _SIDES and inner[-1] in _SIDES:
        return (inner[2:-1] if inner[1:2].isspace() else inner[1:-1]).rstrip()
    if inner and _RIMS.issuperset(inner):
        return ""
    while (
        dress := _DRESS.match(row, text_start)
    ) is not None and dress.end() > text_start:
        text_start = dress.end()
    return row[text_start:]


def _strip_and_shorten(line: str) -> str:
    return shortened(line.strip())
