"""Options of Slurm's commands that list and cancel jobs.
docs/reference/slurm-options.md shows these tables."""

from typing import Final

from corral.wire.slurm.options import Option, OptionTable, OptionUse, Takes

_FLAG: Final = Takes.NOTHING


def _supported_option(
    name: str, short: str, says: str, takes: Takes = Takes.VALUE, *, adds: bool = False
) -> Option:
    return Option(name=name, short=short, says=says, takes=takes, adds=adds)


def _ignored_option(
    name: str, short: str, why: str, takes: Takes = Takes.VALUE
) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.NOTED)


def _refused_option(
    name: str, short: str, why: str, takes: Takes = Takes.VALUE
) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.REFUSED)


_HELP: Final = (
    _supported_option("help", "", "how it is used", _FLAG),
    _supported_option("usage", "", "how it is used", _FLAG),
    _ignored_option("verbose", "v", "it says no more", _FLAG),
)
_ONE: Final = (
    _ignored_option("clusters", "M", "there is one cluster"),
    _ignored_option("local", "", "there is one cluster", _FLAG),
    _ignored_option("federation", "", "there is one cluster", _FLAG),
    _ignored_option("noconvert", "", "sizes are as they were asked for", _FLAG),
)
_YAML: Final = _refused_option("yaml", "", "use --json", _FLAG)

SQUEUE: Final = OptionTable(
    "squeue",
    (
        _supported_option("account", "A", "of these queues"),
        _ignored_option("all", "a", "no queue is hidden", _FLAG),
        _supported_option("array", "r", "one line for each job of an array", _FLAG),
        _supported_option(
            "array-unique", "", "one line for each job of an array", _FLAG
        ),
        _supported_option(
            "format", "o", "%[.][N]LETTER and text between; SQUEUE_FORMAT"
        ),
        _supported_option("Format", "O", "NAME[:[.]N],..."),
        _ignored_option("hide", "", "no queue is hidden", _FLAG),
        _supported_option("iterate", "i", "again every N seconds"),
        _supported_option("jobs", "j", "these jobs: 17,18_3,19_[0-4]", adds=True),
        _supported_option("job", "", "the same"),
        _supported_option("json", "", "in JSON", _FLAG),
        _ignored_option("licenses", "L", "there are none"),
        _supported_option("long", "l", "more columns", _FLAG),
        _supported_option("me", "", "your own jobs", _FLAG),
        _supported_option("name", "n", "of these names"),
        _supported_option("noheader", "h", "no titles", _FLAG),
        _supported_option("nodelist", "w", "on these nodes"),
        _supported_option("partition", "p", "of these queues"),
        _ignored_option("qos", "q", "there are priorities, and no QOS"),
        _ignored_option("reservation", "R", "there are none"),
        _ignored_option("sibling", "", "there is one cluster", _FLAG),
        _supported_option(
            "sort", "S", "by these letters of -o, - before one: downwards"
        ),
        _supported_option(
            "start", "", "waiting jobs, and when they are likely to start", _FLAG
        ),
        _supported_option("states", "t", "in these states: PD,R,... or all"),
        _refused_option("steps", "s", "run: corral logs JOB; steps are not listed"),
        _supported_option("user", "u", "of these users"),
        *_ONE,
        _YAML,
        *_HELP,
    ),
)

SINFO: Final = OptionTable(
    "sinfo",
    (
        _ignored_option("all", "a", "no queue is hidden", _FLAG),
        _supported_option("dead", "d", "nodes that do not answer", _FLAG),
        _ignored_option("exact", "e", "nodes are grouped by state", _FLAG),
        _supported_option(
            "format", "o", "%[.][N]LETTER and text between; SINFO_FORMAT"
        ),
        _supported_option("Format", "O", "NAME[:[.]N],..."),
        _ignored_option("hide", "", "no queue is hidden", _FLAG),
        _supported_option("iterate", "i", "again every N seconds"),
        _supported_option("json", "", "in JSON", _FLAG),
        _supported_option(
            "list-reasons", "R", "nodes that take no work, and why", _FLAG
        ),
        _supported_option("long", "l", "more columns", _FLAG),
        _supported_option("Node", "N", "a line for each node", _FLAG),
        _supported_option("nodes", "n", "these nodes"),
        _supported_option("noheader", "h", "no titles", _FLAG),
        _supported_option("partition", "p", "these queues"),
        _ignored_option("reservation", "T", "there are none", _FLAG),
        _supported_option("responding", "r", "nodes that answer", _FLAG),
        _ignored_option("sort", "S", "by queue and name"),
        _supported_option("states", "t", "nodes in these states"),
        _supported_option("summarize", "s", "a line for each queue", _FLAG),
        *_ONE,
        _YAML,
        *_HELP,
    ),
)

SACCT: Final = OptionTable(
    "sacct",
    (
        _supported_option("allusers", "a", "of all users", _FLAG),
        _supported_option("accounts", "A", "of these queues"),
        _supported_option(
            "allocations", "X", "jobs, and no steps: there are no others here", _FLAG
        ),
        _ignored_option("array", "", "jobs of an array have a line each", _FLAG),
        _supported_option("brief", "b", "JobID, State, ExitCode", _FLAG),
        _ignored_option("completion", "c", "there is one record of jobs", _FLAG),
        _supported_option("delimiter", "", "instead of |"),
        _ignored_option("duplicates", "D", "numbers are never used again", _FLAG),
        _supported_option("endtime", "E", "jobs that were there before it"),
        _ignored_option("federation", "", "there is one cluster", _FLAG),
        _ignored_option("file", "f", "there is one record of jobs"),
        _supported_option("format", "o", "NAME[%N],..."),
        _supported_option("helpformat", "e", "the names", _FLAG),
        _supported_option("jobs", "j", "these jobs: 17,18_3,19_[0-4]", adds=True),
        _supported_option("json", "", "in JSON", _FLAG),
        _supported_option("long", "l", "all columns", _FLAG),
        _ignored_option("local", "L", "there is one cluster", _FLAG),
        _ignored_option("clusters", "M", "there is one cluster"),
        _supported_option("name", "", "of these names"),
        _supported_option("noheader", "n", "no titles", _FLAG),
        _ignored_option("noconvert", "", "sizes are as they were asked for", _FLAG),
        _supported_option("nodelist", "N", "on these nodes"),
        _supported_option("parsable", "p", "with | between and behind", _FLAG),
        _supported_option("parsable2", "P", "with | between", _FLAG),
        _supported_option("partition", "r", "of these queues"),
        _supported_option(
            "starttime", "S", "jobs that ended after it; today, where no job is named"
        ),
        _supported_option("state", "s", "in these states"),
        _ignored_option("truncate", "T", "times are as they were", _FLAG),
        _ignored_option("units", "", "sizes are as they were asked for"),
        _supported_option("user", "u", "of these users"),
        _ignored_option("uid", "", "write --user"),
        _ignored_option(
            "whole-hetjob", "", "there are no heterogeneous jobs", Takes.MAYBE
        ),
        _YAML,
        _supported_option("help", "h", "how it is used", _FLAG),
        _supported_option("usage", "", "how it is used", _FLAG),
        _ignored_option("verbose", "v", "it says no more", _FLAG),
    ),
)

SACCTMGR: Final = OptionTable(
    "sacctmgr",
    (
        _supported_option(
            "associations", "s", "of users: a line for each of their accounts", _FLAG
        ),
        _supported_option("format", "o", "NAME[%N],...; format=... as well"),
        _supported_option("noheader", "n", "no titles", _FLAG),
        _supported_option("parsable", "p", "with | between and behind", _FLAG),
        _supported_option("parsable2", "P", "with | between", _FLAG),
        _ignored_option("immediate", "i", "nothing is changed here", _FLAG),
        _ignored_option("oneliner", "", "a line for each anyway", _FLAG),
        _ignored_option("quiet", "Q", "it says no more", _FLAG),
        _ignored_option("readonly", "r", "nothing is changed here", _FLAG),
        *_HELP,
    ),
)

SSHARE: Final = OptionTable(
    "sshare",
    (
        _supported_option("accounts", "A", "these queues"),
        _ignored_option("all", "a", "write --users=NAMES", _FLAG),
        _supported_option("format", "o", "NAME[%N],..."),
        _ignored_option("long", "l", "there are no more columns", _FLAG),
        _ignored_option("clusters", "M", "there is one cluster"),
        _supported_option("noheader", "n", "no titles", _FLAG),
        _supported_option("parsable", "p", "with | between and behind", _FLAG),
        _supported_option("parsable2", "P", "with | between", _FLAG),
        _ignored_option(
            "Partition", "m", "queues are accounts and partitions in one", _FLAG
        ),
        _supported_option(
            "users", "u", "of these users; your own, where none is named"
        ),
        _ignored_option("Users", "U", "of users alone anyway", _FLAG),
        *_HELP,
    ),
)

SCANCEL: Final = OptionTable(
    "scancel",
    (
        _supported_option("account", "A", "jobs of this queue"),
        _supported_option(
            "batch", "b", "with --signal: to the script's shell alone", _FLAG
        ),
        _supported_option(
            "full",
            "f",
            "with --signal: to the script, what it has started and its steps",
            _FLAG,
        ),
        _ignored_option("hurry", "H", "there is no burst buffer", _FLAG),
        _supported_option("interactive", "i", "asks for each job", _FLAG),
        _ignored_option("clusters", "M", "there is one cluster"),
        _supported_option("me", "", "your own jobs", _FLAG),
        _supported_option("name", "n", "jobs of this name"),
        _supported_option("nodelist", "w", "jobs on these nodes"),
        _supported_option("partition", "p", "jobs of this queue"),
        _ignored_option("qos", "q", "there are priorities, and no QOS"),
        _supported_option("quiet", "Q", "says nothing of jobs that are over", _FLAG),
        _ignored_option("reservation", "R", "there are none"),
        _refused_option("sibling", "", "remove the option; there is only one cluster"),
        _supported_option(
            "signal", "s", "sent to the steps of what runs; KILL cancels"
        ),
        _supported_option("state", "t", "jobs in this state"),
        _supported_option("user", "u", "jobs of this user"),
        _ignored_option("wckey", "", "there are no such keys"),
        *_HELP,
    ),
)
