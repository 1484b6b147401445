"""Every option of Slurm's sbatch, and what it does here;
docs/reference/slurm-options.md shows this table."""

from typing import Final

from corral.wire.slurm.options import Option, OptionTable, OptionUse, Takes

_FLAG: Final = Takes.NOTHING
_MAYBE: Final = Takes.MAYBE


def _o(
    name: str, short: str, says: str, *, takes: Takes = Takes.VALUE, variable: str = ""
) -> Option:
    return Option(name=name, short=short, says=says, takes=takes, variable=variable)


def _noted(
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


def _refused(name: str, short: str, why: str, *, takes: Takes = Takes.VALUE) -> Option:
    return Option(name=name, short=short, says=why, takes=takes, use=OptionUse.REFUSED)


_TUNED: Final = "nodes are not tuned by jobs"
_LAYOUT: Final = "CPUs are given by number, wherever they are on the node"

JOB_OPTIONS: Final = (
    _noted("account", "A", "the queue pays: -p NAME", variable="SBATCH_ACCOUNT"),
    _o("begin", "b", "not before; begin"),
    _noted("comment", "", "it is kept nowhere"),
    _noted("bb", "", "there is no burst buffer"),
    _noted("bbf", "", "there is no burst buffer"),
    _o("chdir", "D", "where the script begins"),
    _o(
        "constraint",
        "C",
        "labels of nodes: ib, zone=a, ib&zone=a; no |, and no [counts]",
        variable="SBATCH_CONSTRAINT",
    ),
    _refused("cluster-constraint", "", "there is one cluster; leave it out"),
    _noted("clusters", "M", "there is one cluster", variable="SBATCH_CLUSTERS"),
    _refused(
        "container",
        "",
        "a bundle is not run; write image: in a spec: corral apply -f FILE",
    ),
    _refused("contiguous", "", "write topology: require:rack in a spec", takes=_FLAG),
    _noted("core-spec", "S", "no cores are reserved"),
    _o(
        "corral-token",
        "",
        "own or submit: what the job's own token lets it do, e.g. sbatch in it",
        variable="SBATCH_CORRAL_TOKEN",
    ),
    _noted("cores-per-socket", "", _LAYOUT),
    _o("cpus-per-gpu", "", "cores for each GPU", variable="SBATCH_CPUS_PER_GPU"),
    _o("cpus-per-task", "c", "cores for each task", variable="SBATCH_CPUS_PER_TASK"),
    _noted("cpu-freq", "", _TUNED),
    _o("deadline", "", "it must have started --time before it, or it ends (DEADLINE)"),
    _noted("delay-boot", "", "nodes are not booted for a job"),
    _o(
        "dependency",
        "d",
        "after, afterok, afternotok, afterany and singleton, joined by commas; "
        "not aftercorr, not ?, no +minutes",
    ),
    _noted(
        "distribution",
        "m",
        "tasks are laid out in blocks",
        variable="SBATCH_DISTRIBUTION",
    ),
    _o("exclude", "x", "not on these nodes"),
    _o(
        "exclusive",
        "",
        "no other job on its nodes",
        takes=_MAYBE,
        variable="SBATCH_EXCLUSIVE",
    ),
    _o(
        "export",
        "",
        "ALL, NONE, NAMES and NAME=VALUE; ALL leaves out what is named like a secret",
        takes=_MAYBE,
        variable="SBATCH_EXPORT",
    ),
    _refused("export-file", "", "write --export=NAME=VALUE,..."),
    _noted("extra-node-info", "B", _LAYOUT),
    _noted(
        "get-user-env", "", "the environment is that of the submission", takes=_MAYBE
    ),
    _refused("gid", "", "a job runs as its owner"),
    _noted("gpu-bind", "", "tasks see all GPUs of the job on their node"),
    _noted("gpu-freq", "", _TUNED),
    _o(
        "gpus",
        "G",
        "GPUs of the whole job, in equal parts over its nodes",
        variable="SBATCH_GPUS",
    ),
    _o(
        "gpus-per-node",
        "",
        "GPUs of each node: 8, h100:8",
        variable="SBATCH_GPUS_PER_NODE",
    ),
    _refused("gpus-per-socket", "", "write --gpus-per-node"),
    _o("gpus-per-task", "", "GPUs of each task", variable="SBATCH_GPUS_PER_TASK"),
    _o(
        "gres",
        "",
        "gpu, gpu:8, gpu:h100:8, none; no other kind",
        variable="SBATCH_GRES",
    ),
    _noted("gres-flags", "", "GPUs near to each other are taken first anyway"),
    _o("hold", "H", "held until scontrol release", takes=_FLAG),
    _o(
        "job-name",
        "J",
        "its name; what a name cannot hold becomes a dash",
        variable="SBATCH_JOB_NAME",
    ),
    _noted("kill-on-invalid-dep", "", "such a job is cancelled anyway"),
    _noted("licenses", "L", "there are none to be counted"),
    _noted("mail-type", "", "no mail is sent"),
    _noted("mail-user", "", "no mail is sent"),
    _noted("mcs-label", "", "there are no such labels"),
    _o(
        "mem",
        "",
        "memory of each node; 0: what the node has (no limit)",
        variable="SBATCH_MEM_PER_NODE",
    ),
    _o("mem-per-cpu", "", "memory for each core", variable="SBATCH_MEM_PER_CPU"),
    _o("mem-per-gpu", "", "memory for each GPU", variable="SBATCH_MEM_PER_GPU"),
    _noted("mem-bind", "", _LAYOUT),
    _noted("mincpus", "", "write --cpus-per-task"),
    _o("nice", "", "so much less priority", takes=_MAYBE),
    _noted("no-kill", "k", "a gang is whole or it starts again", takes=_MAYBE),
    _refused("nodefile", "F", "write --nodelist"),
    _o("nodelist", "w", "on these nodes; as many as it needs, or more to choose from"),
    _o("nodes", "N", "2, or 2-4: as many of them as are free"),
    _o("ntasks", "n", "tasks; without -N on one node"),
    _noted("ntasks-per-core", "", _LAYOUT),
    _o("ntasks-per-gpu", "", "tasks for each GPU"),
    _o("ntasks-per-node", "", "tasks of each node"),
    _noted("ntasks-per-socket", "", _LAYOUT),
    _noted("overcommit", "O", "a task has its cores", takes=_FLAG),
    _noted(
        "oversubscribe", "s", "jobs share nodes unless one is exclusive", takes=_FLAG
    ),
    _o(
        "partition", "p", "the queue; of several the first", variable="SBATCH_PARTITION"
    ),
    _noted("power", "", _TUNED),
    _o("priority", "", "its priority, -10000 to 10000"),
    _noted("profile", "", "use is measured anyway", variable="SBATCH_PROFILE"),
    _noted("propagate", "", "limits are those of the node", takes=_MAYBE),
    _o(
        "qos",
        "q",
        "low, normal and high are priorities; others are ignored",
        variable="SBATCH_QOS",
    ),
    _noted("reboot", "", "nodes are not booted for a job", takes=_FLAG),
    _refused(
        "reservation",
        "",
        "no nodes are set aside; ask for a queue with nodes of its own",
    ),
    _o(
        "signal",
        "",
        "sent N seconds before the end of --time; R: and B: alike",
        variable="SBATCH_SIGNAL",
    ),
    _noted("sockets-per-node", "", _LAYOUT),
    _o("spread-job", "", "over as many racks as can be", takes=_FLAG),
    _noted("switches", "", "nodes near to each other are taken first anyway"),
    _noted("thread-spec", "", "no threads are reserved"),
    _noted("threads-per-core", "", _LAYOUT),
    _o("time", "t", "max_duration", variable="SBATCH_TIMELIMIT"),
    _noted("time-min", "", "the limit is not shortened"),
    _noted("tmp", "", "disks are not counted"),
    _refused("uid", "", "a job runs as its owner"),
    _noted("use-min-nodes", "", "the most nodes that are free are taken", takes=_FLAG),
    _noted("wckey", "", "there are no such keys", variable="SBATCH_WCKEY"),
    _o("quiet", "Q", "no notes", takes=_FLAG),
    _o("verbose", "v", "taken, and says no more", takes=_FLAG),
    _o("help", "h", "how it is used", takes=_FLAG),
    _o("usage", "", "how it is used, in short", takes=_FLAG),
    _o("version", "V", "the version", takes=_FLAG),
)

SBATCH: Final = OptionTable(
    "sbatch",
    (
        *JOB_OPTIONS,
        _o(
            "array",
            "a",
            "indices, with %N at most N at once",
            variable="SBATCH_ARRAY_INX",
        ),
        _o("error", "e", "the file for standard error, on a node that sees its folder"),
        _noted("ignore-pbs", "", "lines of #PBS are not read anyway", takes=_FLAG),
        _o("input", "i", "the file for standard input"),
        _o(
            "no-requeue",
            "",
            "it does not start again after a fault of the cluster",
            takes=_FLAG,
            variable="SBATCH_NO_REQUEUE",
        ),
        _o("open-mode", "", "append or truncate", variable="SBATCH_OPEN_MODE"),
        _o(
            "output",
            "o",
            "the file for standard output: %j %A %a %x %N %n %u; else slurm-%j.out",
        ),
        _o("parsable", "", "prints the number alone", takes=_FLAG),
        _o(
            "requeue",
            "",
            "as always: it starts again after a fault of the cluster",
            takes=_FLAG,
            variable="SBATCH_REQUEUE",
        ),
        _o("test-only", "", "says when it would start; nothing happens", takes=_FLAG),
        _o(
            "wait",
            "W",
            "stays until it is over, and ends as it did",
            takes=_FLAG,
            variable="SBATCH_WAIT",
        ),
        _o("wrap", "", "this command instead of a script"),
    ),
)

_ONE_PROGRAM: Final = "one program runs in all tasks"
SRUN: Final = OptionTable(
    "srun",
    (
        *(option for option in JOB_OPTIONS if option.name not in ("help",)),
        _noted("acctg-freq", "", "use is measured anyway"),
        _refused("bcast", "", "put the program where all nodes see it", takes=_MAYBE),
        _refused("bcast-exclude", "", "put the program where all nodes see it"),
        _noted("compress", "", "nothing is sent along", takes=_MAYBE),
        _noted("cpu-bind", "", _LAYOUT),
        _noted("disable-status", "X", "Ctrl-C ends it", takes=_FLAG),
        _noted("epilog", "", "write it behind the program"),
        _o("error", "e", "the file for standard error; %t: one a task"),
        _noted("exact", "", "steps share what the job holds", takes=_FLAG),
        _o("help", "", "how it is used", takes=_FLAG),
        _refused("het-group", "", "there are no heterogeneous jobs"),
        _noted("immediate", "I", "it waits in line", takes=_MAYBE),
        _o(
            "input",
            "i",
            "a file, all, none, or the number of the one task that gets standard input",
        ),
        _o("jobid", "", "of the job that it is in"),
        _o("kill-on-bad-exit", "K", "one task's failure ends the others", takes=_MAYBE),
        _o("label", "l", "each line begins with the number of its task", takes=_FLAG),
        _o(
            "mpi",
            "",
            "none, and list; programs find each other by themselves (torchrun, a launcher)",
        ),
        _refused("multi-prog", "", _ONE_PROGRAM, takes=_FLAG),
        _refused("no-allocate", "Z", "nodes are given by the head", takes=_FLAG),
        _o("open-mode", "", "append or truncate"),
        _o("output", "o", "the file for standard output; %t: one a task"),
        _noted("overlap", "", "steps share what the job holds anyway", takes=_FLAG),
        _noted("preserve-env", "E", "options come first", takes=_FLAG),
        _noted("prolog", "", "write it before the program"),
        _o(
            "pty",
            "",
            "a terminal on the first node, outside of a job; in one: corral attach JOB",
            takes=_FLAG,
        ),
        _noted("quit-on-interrupt", "", "Ctrl-C ends it", takes=_FLAG),
        _o("relative", "r", "from this node of the job on"),
        _noted("resv-ports", "", "programs choose ports by themselves", takes=_MAYBE),
        _noted("send-libs", "", "nothing is sent along", takes=_MAYBE),
        _noted("slurmd-debug", "", "there is no slurmd"),
        _noted("task-epilog", "", "write it behind the program"),
        _noted("task-prolog", "", "write it before the program"),
        _noted("threads", "T", "tasks are started at once"),
        _noted("unbuffered", "u", "output is passed on as it comes", takes=_FLAG),
        _o("wait", "W", "N seconds after the first end the others are ended; 0: never"),
    ),
)
