"""Every command: where it is, what it does in a line, and under which heading help shows it."""

from dataclasses import dataclass
from typing import Final

CLUSTER: Final = "Cluster"
JOBS: Final = "Jobs"
MORE: Final = "More"

RUN: Final = (
    "Run a command as a job and follow it to its end.\n\n"
    "One word after -- is a line for the shell; several are a command and its arguments, as typed. "
    "Without a head, one is started here. Ctrl-C leaves the job running."
)

APPLY: Final = """Submit the jobs of a spec file (YAML or TOML).

A batch script of Slurm's is taken, too.

A YAML file may hold several jobs: documents divided by a line of ---.
They are submitted all or none, and may name one another in `after`:

    name: prepare
    workdir: .
    run: ./prepare.sh
    ---
    name: train
    workdir: .
    after: prepare
    run: ./train.sh
"""

GROUPS: Final = {
    "queue": "List queues, and set what they may have; alone, it lists jobs as ps does.",
    "import": "Learn from the history of another system, and replay it.",
    "plan": "Say what fits, how fast it is, what to build, buy or rent, and how often it breaks.",
    "node": "List nodes, let others join, and take them out of work or back in.",
    "secret": "Keep secrets for jobs; they are never shown again.",
    "user": "Say who may do what.",
    "token": "Make, list and revoke what lets people and programs in.",
    "service": "Let systemd keep the head, or a node's agent, running.",
    "completion": "Let the shell complete commands.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """`name` has its group before it; `target` is module:function within corral.cli."""

    name: str
    target: str
    help: str
    heading: str = JOBS
    alias: str | None = None
    show: bool = True


COMMANDS: Final = (
    Command("up", "cluster:up", "Start a cluster on this machine.", CLUSTER),
    Command("down", "cluster:down", "Stop the head and its agents.", CLUSTER),
    Command("join", "joining:join", "Let this machine be a node of a cluster elsewhere.", CLUSTER),
    Command("leave", "joining:leave", "Let this machine be a node no more.", CLUSTER),
    Command("status", "cluster:status", "Show the head, the nodes and what they hold.", CLUSTER),
    Command("run", "submit:run", RUN),
    Command("apply", "submit:apply", APPLY),
    Command("ps", "jobs:ps", "List jobs, newest first."),
    Command("show", "jobs:show", "Show one job: attempts, receipts, checkpoints."),
    Command("why", "jobs:why", "Say why a job is where it is, and what would change it."),
    Command("logs", "logs:logs", "Print what the ranks printed."),
    Command("attach", "attach:attach", "Open a shell beside a rank, or its standard input."),
    Command("stop", "jobs:stop", "Cancel jobs, or send them a signal.", alias="cancel"),
    Command("suspend", "jobs:suspend", "Save, stop and keep jobs for later."),
    Command("resume", "jobs:resume", "Let suspended or held jobs go on."),
    Command("events", "events:events", "Show what happened, to one job or to all."),
    Command("checkpoints", "jobs:checkpoints", "List the saves of a job."),
    Command("queue ls", "queues:ls", "List the queues and what they use."),
    Command("queue show", "queues:show", "Show one queue, and who uses it."),
    Command("queue set", "queues:put", "Make a queue, or change one."),
    Command("queue rm", "queues:rm", "Take a queue away.", alias="remove"),
    Command("simulate", "simulate:simulate", "Replay a log of jobs under one policy or several."),
    Command("plan model", "planner.model:model", "Does a model fit, and in how many GPUs."),
    Command("plan train", "planner.train:train", "How a run is best laid out, and how long it is."),
    Command("plan serve", "planner.serve:serve", "Which GPUs serve a model within its targets."),
    Command("plan cluster", "planner.cluster:cluster", "What a cluster is built of."),
    Command("plan cost", "planner.cost:cost", "Own or rent: what each costs."),
    Command("plan capacity", "planner.capacity:capacity", "How many GPUs will be needed."),
    Command("plan reliability", "planner.reliability:reliability", "How often it will fail."),
    Command("plan predict", "planner.predict:predict", "Predict each row of a table."),
    Command("plan validate", "planner.predict:validate", "Hold predictions against measurements."),
    Command("plan prices", "planner.prices:prices", "What GPUs cost by the hour."),
    Command("plan catalog", "planner.catalog:catalog", "Show the numbers that plans are made of."),
    Command("import sacct", "imports:sacct", "Keep jobs that Slurm ran, to learn from."),
    Command("import kueue", "imports:kueue", "Keep jobs that Kueue ran, to learn from."),
    Command("node ls", "nodes:ls", "List the nodes."),
    Command("node show", "nodes:show", "Show one node and its GPUs."),
    Command("node cordon", "nodes:cordon", "Give a node no new work."),
    Command("node drain", "nodes:drain", "Give a node no new work, and move what runs there."),
    Command("node uncordon", "nodes:uncordon", "Give a node work again."),
    Command("node token", "joining:create_token", "Print a line that lets a machine join."),
    Command("node rm", "joining:rm", "Remove a node that has joined.", alias="remove"),
    Command("node dead", "joining:dead", "Say that a silent node is dead."),
    Command("node label", "nodes:label", "Set labels of a node, and take them away."),
    Command("secret set", "secrets:put", "Set a secret from standard input or a prompt."),
    Command("secret ls", "secrets:ls", "List the names of secrets."),
    Command("secret rm", "secrets:rm", "Remove a secret."),
    Command("user add", "people:add", "Let somebody own jobs."),
    Command("user ls", "people:ls", "List the users.", alias="list"),
    Command("user show", "people:show", "Show one user and their tokens."),
    Command("user set", "people:put", "Change a user's role, or whether they are let in."),
    Command("user rm", "people:rm", "Forget a user and revoke their tokens.", alias="remove"),
    Command("token create", "people:create_token", "Make a token and print it, this once."),
    Command("token ls", "people:ls_tokens", "List tokens, of people and of nodes.", alias="list"),
    Command("token revoke", "people:revoke_token", "Take tokens back, at once."),
    Command("backup", "backup:backup", "Write the whole cluster into one file.", CLUSTER),
    Command("restore", "backup:restore", "Make the cluster of a backup in a directory.", CLUSTER),
    Command(
        "slurm-shims",
        "slurm.install:install",
        "Install Slurm's commands, spoken to this cluster.",
        CLUSTER,
    ),
    Command("service install", "service:install", "Let systemd keep it running."),
    Command("service remove", "service:remove", "Take the unit away; what runs, runs on."),
    Command("audit", "people:audit", "Show who asked for what, newest last.", CLUSTER),
    Command("completion install", "completion:install", "Install shell completion."),
    Command("completion show", "completion:show", "Print the completion script of a shell."),
    Command(
        "--install-completion", "completion:install", "Install shell completion.", MORE, show=False
    ),
)
