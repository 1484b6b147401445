"""Options of Slurm's commands that list and cancel; docs/reference/slurm-options.md
shows these tables."""

from typing import Final

from corral.wire.slurm.options import Option, OptionTable, OptionUse, Takes

_FLAG: Final = Takes.NOTHING


def _o(
    name: str, short: str, says: str, takes: Takes = Takes.VALUE, *, adds: bool = False
) -> Option:
    return Option(name=name, short=short, says=says, takes=takes, adds=adds)


def _noted(name: str, short: str, why: str, takes: Takes = Takes.VALUE) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.NOTED)


def _refused(name: str, short: str, why: str, takes: Takes = Takes.VALUE) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.REFUSED)


_HELP: Final = (
    _o("help", "", "how it is used", _FLAG),
    _o("usage", "", "how it is used", _FLAG),
    _noted("verbose", "v", "it says no more", _FLAG),
)
_ONE: Final = (
    _noted("clusters", "M", "there is one cluster"),
    _noted("local", "", "there is one cluster", _FLAG),
    _noted("federation", "", "there is one cluster", _FLAG),
    _noted("noconvert", "", "sizes are as they were asked for", _FLAG),
)
_YAML: Final = _refused("yaml", "", "write --json", _FLAG)

SQUEUE: Final = OptionTable(
    "squeue",
    (
        _o("account", "A", "of these queues"),
        _noted("all", "a", "no queue is hidden", _FLAG),
        _o("array", "r", "one line for each job of an array", _FLAG),
        _o("array-unique", "", "one line for each job of an array", _FLAG),
        _o("format", "o", "%[.][N]LETTER and text between; SQUEUE_FORMAT"),
        _o("Format", "O", "NAME[:[.]N],..."),
        _noted("hide", "", "no queue is hidden", _FLAG),
        _o("iterate", "i", "again every N seconds"),
        _o("jobs", "j", "these jobs: 17,18_3,19_[0-4]", adds=True),
        _o("job", "", "the same"),
        _o("json", "", "in JSON", _FLAG),
        _noted("licenses", "L", "there are none"),
        _o("long", "l", "more columns", _FLAG),
        _o("me", "", "your own jobs", _FLAG),
        _o("name", "n", "of these names"),
        _o("noheader", "h", "no titles", _FLAG),
        _o("nodelist", "w", "on these nodes"),
        _o("partition", "p", "of these queues"),
        _noted("qos", "q", "there are priorities, and no QOS"),
        _noted("reservation", "R", "there are none"),
        _noted("sibling", "", "there is one cluster", _FLAG),
        _o("sort", "S", "by these letters of -o, - before one: downwards"),
        _o("start", "", "waiting jobs, and when they are likely to start", _FLAG),
        _o("states", "t", "in these states: PD,R,... or all"),
        _refused("steps", "s", "steps are not listed: see the log of the job"),
        _o("user", "u", "of these users"),
        *_ONE,
        _YAML,
        *_HELP,
    ),
)

SINFO: Final = OptionTable(
    "sinfo",
    (
        _noted("all", "a", "no queue is hidden", _FLAG),
        _o("dead", "d", "nodes that do not answer", _FLAG),
        _noted("exact", "e", "nodes are grouped by state", _FLAG),
        _o("format", "o", "%[.][N]LETTER and text between; SINFO_FORMAT"),
        _o("Format", "O", "NAME[:[.]N],..."),
        _noted("hide", "", "no queue is hidden", _FLAG),
        _o("iterate", "i", "again every N seconds"),
        _o("json", "", "in JSON", _FLAG),
        _o("list-reasons", "R", "nodes that take no work, and why", _FLAG),
        _o("long", "l", "more columns", _FLAG),
        _o("Node", "N", "a line for each node", _FLAG),
        _o("nodes", "n", "these nodes"),
        _o("noheader", "h", "no titles", _FLAG),
        _o("partition", "p", "these queues"),
        _noted("reservation", "T", "there are none", _FLAG),
        _o("responding", "r", "nodes that answer", _FLAG),
        _noted("sort", "S", "by queue and name"),
        _o("states", "t", "nodes in these states"),
        _o("summarize", "s", "a line for each queue", _FLAG),
        *_ONE,
        _YAML,
        *_HELP,
    ),
)

SACCT: Final = OptionTable(
    "sacct",
    (
        _o("allusers", "a", "of all users", _FLAG),
        _o("accounts", "A", "of these queues"),
        _o("allocations", "X", "jobs, and no steps: there are no others here", _FLAG),
        _noted("array", "", "jobs of an array have a line each", _FLAG),
        _o("brief", "b", "JobID, State, ExitCode", _FLAG),
        _noted("completion", "c", "there is one record of jobs", _FLAG),
        _o("delimiter", "", "instead of |"),
        _noted("duplicates", "D", "numbers are never used again", _FLAG),
        _o("endtime", "E", "jobs that were there before it"),
        _noted("federation", "", "there is one cluster", _FLAG),
        _noted("file", "f", "there is one record of jobs"),
        _o("format", "o", "NAME[%N],..."),
        _o("helpformat", "e", "the names", _FLAG),
        _o("jobs", "j", "these jobs: 17,18_3,19_[0-4]", adds=True),
        _o("json", "", "in JSON", _FLAG),
        _o("long", "l", "all columns", _FLAG),
        _noted("local", "L", "there is one cluster", _FLAG),
        _noted("clusters", "M", "there is one cluster"),
        _o("name", "", "of these names"),
        _o("noheader", "n", "no titles", _FLAG),
        _noted("noconvert", "", "sizes are as they were asked for", _FLAG),
        _o("nodelist", "N", "on these nodes"),
        _o("parsable", "p", "with | between and behind", _FLAG),
        _o("parsable2", "P", "with | between", _FLAG),
        _o("partition", "r", "of these queues"),
        _o("starttime", "S", "jobs that ended after it; today, where no job is named"),
        _o("state", "s", "in these states"),
        _noted("truncate", "T", "times are as they were", _FLAG),
        _noted("units", "", "sizes are as they were asked for"),
        _o("user", "u", "of these users"),
        _noted("uid", "", "write --user"),
        _noted("whole-hetjob", "", "there are no heterogeneous jobs", Takes.MAYBE),
        _YAML,
        _o("help", "h", "how it is used", _FLAG),
        _o("usage", "", "how it is used", _FLAG),
        _noted("verbose", "v", "it says no more", _FLAG),
    ),
)

SACCTMGR: Final = OptionTable(
    "sacctmgr",
    (
        _o("associations", "s", "of users: a line for each of their accounts", _FLAG),
        _o("format", "o", "NAME[%N],...; format=... as well"),
        _o("noheader", "n", "no titles", _FLAG),
        _o("parsable", "p", "with | between and behind", _FLAG),
        _o("parsable2", "P", "with | between", _FLAG),
        _noted("immediate", "i", "nothing is changed here", _FLAG),
        _noted("oneliner", "", "a line for each anyway", _FLAG),
        _noted("quiet", "Q", "it says no more", _FLAG),
        _noted("readonly", "r", "nothing is changed here", _FLAG),
        *_HELP,
    ),
)

SSHARE: Final = OptionTable(
    "sshare",
    (
        _o("accounts", "A", "these queues"),
        _noted("all", "a", "write --users=NAMES", _FLAG),
        _o("format", "o", "NAME[%N],..."),
        _noted("long", "l", "there are no more columns", _FLAG),
        _noted("clusters", "M", "there is one cluster"),
        _o("noheader", "n", "no titles", _FLAG),
        _o("parsable", "p", "with | between and behind", _FLAG),
        _o("parsable2", "P", "with | between", _FLAG),
        _noted("Partition", "m", "queues are accounts and partitions in one", _FLAG),
        _o("users", "u", "of these users; your own, where none is named"),
        _noted("Users", "U", "of users alone anyway", _FLAG),
        *_HELP,
    ),
)

SCANCEL: Final = OptionTable(
    "scancel",
    (
        _o("account", "A", "jobs of this queue"),
        _o("batch", "b", "with --signal: to the script's shell alone", _FLAG),
        _o(
            "full",
            "f",
            "with --signal: to the script, what it has started and its steps",
            _FLAG,
        ),
        _noted("hurry", "H", "there is no burst buffer", _FLAG),
        _o("interactive", "i", "asks for each job", _FLAG),
        _noted("clusters", "M", "there is one cluster"),
        _o("me", "", "your own jobs", _FLAG),
        _o("name", "n", "jobs of this name"),
        _o("nodelist", "w", "jobs on these nodes"),
        _o("partition", "p", "jobs of this queue"),
        _noted("qos", "q", "there are priorities, and no QOS"),
        _o("quiet", "Q", "says nothing of jobs that are over", _FLAG),
        _noted("reservation", "R", "there are none"),
        _refused("sibling", "", "there is one cluster"),
        _o("signal", "s", "sent to the steps of what runs; KILL cancels"),
        _o("state", "t", "jobs in this state"),
        _o("user", "u", "jobs of this user"),
        _noted("wckey", "", "there are no such keys"),
        *_HELP,
    ),
)
