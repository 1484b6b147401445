"""Every option of Slurm's sbatch, and its effect in Corral.
docs/reference/slurm-options.md shows this table."""

from typing import Final

from corral.wire.slurm.options import Option, OptionTable, OptionUse, Takes

_FLAG: Final = Takes.NOTHING
_MAYBE: Final = Takes.MAYBE


def _supported_option(
    name: str, short: str, says: str, *, takes: Takes = Takes.VALUE, variable: str = ""
) -> Option:
    return Option(name=name, short=short, says=says, takes=takes, variable=variable)


def _ignored_option(
    name: str, short: str, why: str, *, takes: Takes = Takes.VALUE, variable: str = ""
) -> Option:
    return Option(
        name=name,
        short=short,
        says=why,
        takes=takes,
        variable=variable,
        use=OptionUse.NOTED,
    )


def _refused_option(
    name: str, short: str, why: str, *, takes: Takes = Takes.VALUE
) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.REFUSED)


_TUNED: Final = "nodes are not tuned by jobs"
_LAYOUT: Final = "CPUs are given by number, wherever they are on the node"

JOB_OPTIONS: Final = (
    _ignored_option(
        "account", "A", "the queue pays: -p NAME", variable="SBATCH_ACCOUNT"
    ),
    _supported_option("begin", "b", "not before; begin"),
    _ignored_option("comment", "", "it is kept nowhere"),
    _ignored_option("bb", "", "there is no burst buffer"),
    _ignored_option("bbf", "", "there is no burst buffer"),
    _supported_option("chdir", "D", "where the script begins"),
    _supported_option(
        "constraint",
        "C",
        "labels of nodes: ib, zone=a, ib&zone=a; no |, and no [counts]",
        variable="SBATCH_CONSTRAINT",
    ),
    _refused_option(
        "cluster-constraint", "", "remove the option; there is only one cluster"
    ),
    _ignored_option(
        "clusters", "M", "there is one cluster", variable="SBATCH_CLUSTERS"
    ),
    _refused_option(
        "container",
        "",
        "write image: in a spec, and run: corral apply -f FILE",
    ),
    _refused_option(
        "contiguous",
        "",
        "write topology: require:rack in a spec, and run: corral apply -f FILE",
        takes=_FLAG,
    ),
    _ignored_option("core-spec", "S", "no cores are reserved"),
    _supported_option(
        "corral-token",
        "",
        "own or submit: what the job's own token lets it do, e.g. sbatch in it",
        variable="SBATCH_CORRAL_TOKEN",
    ),
    _ignored_option("cores-per-socket", "", _LAYOUT),
    _supported_option(
        "cpus-per-gpu", "", "cores for each GPU", variable="SBATCH_CPUS_PER_GPU"
    ),
    _supported_option(
        "cpus-per-task", "c", "cores for each task", variable="SBATCH_CPUS_PER_TASK"
    ),
    _ignored_option("cpu-freq", "", _TUNED),
    _supported_option(
        "deadline", "", "it must have started --time before it, or it ends (DEADLINE)"
    ),
    _ignored_option("delay-boot", "", "nodes are not booted for a job"),
    _supported_option(
        "dependency",
        "d",
        "after, afterok, afternotok, afterany and singleton, joined by commas; "
        "not aftercorr, not ?, no +minutes",
    ),
    _ignored_option(
        "distribution",
        "m",
        "tasks are laid out in blocks",
        variable="SBATCH_DISTRIBUTION",
    ),
    _supported_option("exclude", "x", "not on these nodes"),
    _supported_option(
        "exclusive",
        "",
        "no other job on its nodes",
        takes=_MAYBE,
        variable="SBATCH_EXCLUSIVE",
    ),
    _supported_option(
        "export",
        "",
        "ALL, NONE, NAMES and NAME=VALUE; ALL leaves out what is named like a secret",
        takes=_MAYBE,
        variable="SBATCH_EXPORT",
    ),
    _refused_option("export-file", "", "use --export=NAME=VALUE,..."),
    _ignored_option("extra-node-info", "B", _LAYOUT),
    _ignored_option(
        "get-user-env", "", "the environment is that of the submission", takes=_MAYBE
    ),
    _refused_option("gid", "", "remove the option; a job always runs as its owner"),
    _ignored_option("gpu-bind", "", "tasks see all GPUs of the job on their node"),
    _ignored_option("gpu-freq", "", _TUNED),
    _supported_option(
        "gpus",
        "G",
        "GPUs of the whole job, in equal parts over its nodes",
        variable="SBATCH_GPUS",
    ),
    _supported_option(
        "gpus-per-node",
        "",
        "GPUs of each node: 8, h100:8",
        variable="SBATCH_GPUS_PER_NODE",
    ),
    _refused_option("gpus-per-socket", "", "use --gpus-per-node"),
    _supported_option(
        "gpus-per-task", "", "GPUs of each task", variable="SBATCH_GPUS_PER_TASK"
    ),
    _supported_option(
        "gres",
        "",
        "gpu, gpu:8, gpu:h100:8, none; no other kind",
        variable="SBATCH_GRES",
    ),
    _ignored_option("gres-flags", "", "GPUs near to each other are taken first anyway"),
    _supported_option("hold", "H", "held until scontrol release", takes=_FLAG),
    _supported_option(
        "job-name",
        "J",
        "its name; what a name cannot hold becomes a dash",
        variable="SBATCH_JOB_NAME",
    ),
    _ignored_option("kill-on-invalid-dep", "", "such a job is cancelled anyway"),
    _ignored_option("licenses", "L", "there are none to be counted"),
    _ignored_option("mail-type", "", "no mail is sent"),
    _ignored_option("mail-user", "", "no mail is sent"),
    _ignored_option("mcs-label", "", "there are no such labels"),
    _supported_option(
        "mem",
        "",
        "memory of each node; 0: what the node has (no limit)",
        variable="SBATCH_MEM_PER_NODE",
    ),
    _supported_option(
        "mem-per-cpu", "", "memory for each core", variable="SBATCH_MEM_PER_CPU"
    ),
    _supported_option(
        "mem-per-gpu", "", "memory for each GPU", variable="SBATCH_MEM_PER_GPU"
    ),
    _ignored_option("mem-bind", "", _LAYOUT),
    _ignored_option("mincpus", "", "write --cpus-per-task"),
    _supported_option("nice", "", "so much less priority", takes=_MAYBE),
    _ignored_option("no-kill", "k", "a gang is whole or it starts again", takes=_MAYBE),
    _refused_option("nodefile", "F", "use --nodelist"),
    _supported_option(
        "nodelist", "w", "on these nodes; as many as it needs, or more to choose from"
    ),
    _supported_option("nodes", "N", "2, or 2-4: as many of them as are free"),
    _supported_option("ntasks", "n", "tasks; without -N on one node"),
    _ignored_option("ntasks-per-core", "", _LAYOUT),
    _supported_option("ntasks-per-gpu", "", "tasks for each GPU"),
    _supported_option("ntasks-per-node", "", "tasks of each node"),
    _ignored_option("ntasks-per-socket", "", _LAYOUT),
    _ignored_option("overcommit", "O", "a task has its cores", takes=_FLAG),
    _ignored_option(
        "oversubscribe", "s", "jobs share nodes unless one is exclusive", takes=_FLAG
    ),
    _supported_option(
        "partition", "p", "the queue; of several the first", variable="SBATCH_PARTITION"
    ),
    _ignored_option("power", "", _TUNED),
    _supported_option("priority", "", "its priority, -10000 to 10000"),
    _ignored_option("profile", "", "use is measured anyway", variable="SBATCH_PROFILE"),
    _ignored_option("propagate", "", "limits are those of the node", takes=_MAYBE),
    _supported_option(
        "qos",
        "q",
        "low, normal and high are priorities; others are ignored",
        variable="SBATCH_QOS",
    ),
    _ignored_option("reboot", "", "nodes are not booted for a job", takes=_FLAG),
    _refused_option(
        "reservation",
        "",
        "use --partition with a queue that owns GPUs; there are no reservations",
    ),
    _supported_option(
        "signal",
        "",
        "sent N seconds before the end of --time; R: and B: alike",
        variable="SBATCH_SIGNAL",
    ),
    _ignored_option("sockets-per-node", "", _LAYOUT),
    _supported_option("spread-job", "", "over as many racks as can be", takes=_FLAG),
    _ignored_option("switches", "", "nodes near to each other are taken first anyway"),
    _ignored_option("thread-spec", "", "no threads are reserved"),
    _ignored_option("threads-per-core", "", _LAYOUT),
    _supported_option("time", "t", "max_duration", variable="SBATCH_TIMELIMIT"),
    _ignored_option("time-min", "", "the limit is not shortened"),
    _ignored_option("tmp", "", "disks are not counted"),
    _refused_option("uid", "", "remove the option; a job always runs as its owner"),
    _ignored_option(
        "use-min-nodes", "", "the most nodes that are free are taken", takes=_FLAG
    ),
    _ignored_option("wckey", "", "there are no such keys", variable="SBATCH_WCKEY"),
    _supported_option("quiet", "Q", "no notes", takes=_FLAG),
    _supported_option("verbose", "v", "taken, and says no more", takes=_FLAG),
    _supported_option("help", "h", "how it is used", takes=_FLAG),
    _supported_option("usage", "", "how it is used, in short", takes=_FLAG),
    _supported_option("version", "V", "the version", takes=_FLAG),
)

SBATCH: Final = OptionTable(
    "sbatch",
    (
        *JOB_OPTIONS,
        _supported_option(
            "array",
            "a",
            "indices, with %N at most N at once",
            variable="SBATCH_ARRAY_INX",
        ),
        _supported_option(
            "error", "e", "the file for standard error, on a node that sees its folder"
        ),
        _ignored_option(
            "ignore-pbs", "", "lines of #PBS are not read anyway", takes=_FLAG
        ),
        _supported_option("input", "i", "the file for standard input"),
        _supported_option(
            "no-requeue",
            "",
            "it does not start again after a fault of the cluster",
            takes=_FLAG,
            variable="SBATCH_NO_REQUEUE",
        ),
        _supported_option(
            "open-mode", "", "append or truncate", variable="SBATCH_OPEN_MODE"
        ),
        _supported_option(
            "output",
            "o",
            "the file for standard output: %j %A %a %x %N %n %u; else slurm-%j.out",
        ),
        _supported_option("parsable", "", "prints the number alone", takes=_FLAG),
        _supported_option(
            "requeue",
            "",
            "as always: it starts again after a fault of the cluster",
            takes=_FLAG,
            variable="SBATCH_REQUEUE",
        ),
        _supported_option(
            "test-only", "", "says when it would start; nothing happens", takes=_FLAG
        ),
        _supported_option(
            "wait",
            "W",
            "stays until it is over, and ends as it did",
            takes=_FLAG,
            variable="SBATCH_WAIT",
        ),
        _supported_option("wrap", "", "this command instead of a script"),
    ),
)

_ONE_PROGRAM: Final = "use one program for all tasks"
SRUN: Final = OptionTable(
    "srun",
    (
        *(option for option in JOB_OPTIONS if option.name not in ("help",)),
        _ignored_option("acctg-freq", "", "use is measured anyway"),
        _refused_option(
            "bcast",
            "",
            "put the program into a folder that all nodes share",
            takes=_MAYBE,
        ),
        _refused_option(
            "bcast-exclude", "", "put the program into a folder that all nodes share"
        ),
        _ignored_option("compress", "", "nothing is sent along", takes=_MAYBE),
        _ignored_option("cpu-bind", "", _LAYOUT),
        _ignored_option("disable-status", "X", "Ctrl-C ends it", takes=_FLAG),
        _ignored_option("epilog", "", "write it behind the program"),
        _supported_option("error", "e", "the file for standard error; %t: one a task"),
        _ignored_option("exact", "", "steps share what the job holds", takes=_FLAG),
        _supported_option("help", "", "how it is used", takes=_FLAG),
        _refused_option(
            "het-group", "", "remove the option; heterogeneous steps are not supported"
        ),
        _ignored_option("immediate", "I", "it waits in line", takes=_MAYBE),
        _supported_option(
            "input",
            "i",
            "a file, all, none, or the number of the one task that gets standard input",
        ),
        _supported_option("jobid", "", "of the job that it is in"),
        _supported_option(
            "kill-on-bad-exit", "K", "one task's failure ends the others", takes=_MAYBE
        ),
        _supported_option(
            "label", "l", "each line begins with the number of its task", takes=_FLAG
        ),
        _supported_option(
            "mpi",
            "",
            "none, and list; programs find each other by themselves (torchrun, a launcher)",
        ),
        _refused_option("multi-prog", "", _ONE_PROGRAM, takes=_FLAG),
        _refused_option(
            "no-allocate",
            "Z",
            "remove the option; the head allocates the nodes",
            takes=_FLAG,
        ),
        _supported_option("open-mode", "", "append or truncate"),
        _supported_option(
            "output", "o", "the file for standard output; %t: one a task"
        ),
        _ignored_option(
            "overlap", "", "steps share what the job holds anyway", takes=_FLAG
        ),
        _ignored_option("preserve-env", "E", "options come first", takes=_FLAG),
        _ignored_option("prolog", "", "write it before the program"),
        _supported_option(
            "pty",
            "",
            "a terminal on the first node, outside of a job; in one: corral attach JOB",
            takes=_FLAG,
        ),
        _ignored_option("quit-on-interrupt", "", "Ctrl-C ends it", takes=_FLAG),
        _supported_option("relative", "r", "from this node of the job on"),
        _ignored_option(
            "resv-ports", "", "programs choose ports by themselves", takes=_MAYBE
        ),
        _ignored_option("send-libs", "", "nothing is sent along", takes=_MAYBE),
        _ignored_option("slurmd-debug", "", "there is no slurmd"),
        _ignored_option("task-epilog", "", "write it behind the program"),
        _ignored_option("task-prolog", "", "write it before the program"),
        _ignored_option("threads", "T", "tasks are started at once"),
        _ignored_option(
            "unbuffered", "u", "output is passed on as it comes", takes=_FLAG
        ),
        _supported_option(
            "wait", "W", "N seconds after the first end the others are ended; 0: never"
        ),
    ),
)
