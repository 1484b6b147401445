"""All commands of the command line, each with its function, its one-line help, and the
heading under which help shows it."""

from typing import Final

from corral.cli.checkpoint_commands import CHECKPOINTS
from corral.cli.command import CLUSTER, MORE, Command
from corral.cli.command_help import (
    ALERTS,
    APPLY,
    BATCHES,
    GATEWAY,
    MODELS,
    RUN,
    SERVE,
    SERVICES,
)
from corral.cli.planner.help_texts import CAPACITY, PREDICT, PRICES, VALIDATE

GROUPS: Final = {
    "queue": "List and change queues; without a subcommand, list jobs like corral ps.",
    "import": "Import jobs that another system ran.",
    "plan": """Plan hardware: what fits, how fast, what to build, buy or rent, how often it fails.

Numbers may be written 8192, 1e6, 70B or 15T: K, M, B and T are thousands to trillions.
""",
    "report": "Report usage, waste, cost and goodput of GPUs.",
    "node": "List nodes, add and remove them, and take them out of service.",
    "doctor": """Test the GPUs, links and data directories of nodes, or find problems.

Without a subcommand, it examines this machine and the whole cluster, changes nothing,
and prints what to do about each problem.
""",
    "debug": "Look into the processes of a running job.",
    "checkpoints": """List the checkpoints of a job; show, compare, export, pin or remove one.

corral checkpoints JOB lists them.
""",
    "alert": ALERTS,
    "secret": "Store secrets for jobs; they are never shown again.",
    "user": "Add users, and set what each of them may do.",
    "token": "Create, list and revoke tokens, with which people and programs log in.",
    "key": "Rotate the cluster's key, and create keys for backups.",
    "service": SERVICES,
    "batch": BATCHES,
    "model": MODELS,
    "unit": "Run the head, or a node's agent, as a unit of systemd.",
    "completion": "Install or print shell completion.",
}


COMMANDS: Final = (
    Command(
        "up",
        "cluster:up",
        "Start a cluster on this machine.\n\n"
        "If the cluster runs already, nothing changes.",
        CLUSTER,
    ),
    Command(
        "down",
        "cluster:down",
        "Stop the head and its agents.\n\n"
        "Unfinished jobs are cancelled, unless --leave is given.",
        CLUSTER,
    ),
    Command(
        "join",
        "joining:join",
        "Join this machine to a cluster as a node.\n\n"
        "Run here the command that corral node token prints on the head's machine. "
        "Without a URL, the agent of a machine that has already joined is started "
        "again. Repeating the command is harmless.",
        CLUSTER,
    ),
    Command(
        "leave",
        "joining:leave",
        "Remove this machine from its cluster.\n\n"
        "Its agent stops, and its token is revoked.",
        CLUSTER,
    ),
    Command(
        "status",
        "cluster:status",
        "Show the head, the nodes and their free resources.",
        CLUSTER,
    ),
    Command(
        "top",
        "top.command:top",
        "Show nodes, GPUs and jobs, live.\n\n"
        "The key ? lists all keys. Without a terminal, one snapshot is printed.",
        CLUSTER,
    ),
    Command(
        "ui",
        "open_pages:ui",
        "Print a link that opens the pages in a browser.\n\n"
        "The link works once, within 5 minutes.",
        CLUSTER,
    ),
    Command(
        "login",
        "login:login",
        "Log in to a head through its OpenID Connect provider.",
        CLUSTER,
    ),
    Command(
        "logout",
        "login:logout",
        "Log out: revoke the token of corral login, and remove it here.",
        CLUSTER,
    ),
    Command("run", "submit:run", RUN),
    Command("apply", "submit:apply", APPLY),
    Command("serve", "serve:serve", SERVE),
    Command("ps", "ps:ps", "List jobs, newest first."),
    Command("show", "jobs:show", "Show one job: attempts, receipts, checkpoints."),
    Command("why", "jobs:why", "Explain the state of a job, and what would change it."),
    Command("logs", "logs:logs", "Print the output of the ranks."),
    Command("outputs", "outputs:outputs", "List the files that a job wrote."),
    Command("cp", "outputs:cp", "Copy files from a job's outputs to this machine."),
    Command(
        "debug stacks",
        "stacks:stacks",
        "Show at which line each rank of a job is.\n\n"
        "The processes go on, and need not cooperate. Ranks at the same line are shown "
        "once; a rank that differs from the others is at the end.",
    ),
    Command(
        "attach",
        "attach:attach",
        "Open a shell next to a rank, or write to its standard input.\n\n"
        "The shell runs in the cgroup and the environment of the rank; Ctrl-] "
        "detaches. The exit code is that of the shell; with --stdin it is that of the "
        "rank, if the rank ends while you are attached.",
    ),
    Command("stop", "jobs:stop", "Cancel jobs, or send them a signal.", alias="cancel"),
    Command("suspend", "jobs:suspend", "Save and stop jobs, to be resumed later."),
    Command("resume", "jobs:resume", "Resume suspended or held jobs."),
    Command("events", "events:events", "Show the events of one job, or of all."),
    Command(
        "metrics",
        "metrics:metrics",
        "Show time series of a job, a node, a queue or the cluster.\n\n"
        "They are kept for a month: a point every 10 s for a day, then means of 5 "
        "minutes.",
    ),
    *CHECKPOINTS,
    Command("queue ls", "queues:ls", "List the queues and what they use."),
    Command("queue show", "queues:show", "Show one queue and its users."),
    Command(
        "queue set",
        "queues:put",
        "Create a queue, or change the given settings of a queue.\n\n"
        "The value none resets a setting.",
    ),
    Command(
        "queue rm",
        "queues:rm",
        "Remove a queue.\n\n"
        "A queue with unfinished jobs or with queues below it is not removed.",
        alias="remove",
    ),
    Command(
        "service ls",
        "services:ls",
        "List the services, each with its ready replicas, request rate and URL.",
        alias="list",
    ),
    Command(
        "service show",
        "services:show",
        "Show one service with its replicas, revisions and newest events.",
    ),
    Command(
        "service scale",
        "services:scale",
        "Set how many replicas a service may have.\n\n"
        "Replicas that are too many finish what they have begun.",
    ),
    Command(
        "service rollback",
        "services:roll_back",
        "Serve an earlier revision of a service again.\n\n"
        "A canary is ended. Without one, the earlier revision replaces the replicas "
        "one by one.",
    ),
    Command(
        "service stop",
        "services:stop",
        "End services, after their replicas have finished the requests under way.",
    ),
    Command(
        "service chat",
        "chat:chat",
        "Chat with a service through the gateway.\n\n"
        "Ctrl-C ends an answer, and Ctrl-D the chat.",
    ),
    Command(
        "model ls",
        "models:ls",
        "List the models that nodes keep, and those that they are fetching.",
        alias="list",
    ),
    Command(
        "model pull",
        "models:pull",
        "Fetch a model onto nodes, so that replicas start there at once.\n\n"
        "Without --node and --all, one node fetches it; others then get it from there.",
    ),
    Command(
        "model rm",
        "models:rm",
        "Remove a model from nodes.\n\nA model that a job uses is not removed.",
        alias="remove",
    ),
    Command(
        "batch submit",
        "batch:submit",
        "Send the requests of a file to a service, and keep the answers.\n\n"
        "A job of low priority does it, which may be preempted. Each line has one answer, "
        "whatever fails meanwhile.",
    ),
    Command("batch ls", "batch:ls", "List batches with their progress.", alias="list"),
    Command(
        "batch show",
        "batch:show",
        "Show one batch: lines done, failed and left, rate, tokens and expected end.",
    ),
    Command(
        "batch cancel", "batch:cancel", "Cancel batches. The answers so far are kept."
    ),
    Command(
        "simulate",
        "simulate:simulate",
        "Replay a log of jobs, to see how long they would wait.",
    ),
    Command(
        "plan model", "planner.model:model", "Compute how many GPUs a model needs."
    ),
    Command(
        "plan train",
        "planner.train:train",
        "Find the best layout of a training run, and how long it takes.",
    ),
    Command(
        "plan serve",
        "planner.serve:serve",
        "Find the cheapest GPUs that serve a model within latency targets.",
    ),
    Command(
        "plan cluster",
        "planner.cluster:cluster",
        "List the parts of a cluster: servers, switches, storage, racks.",
    ),
    Command(
        "plan cost",
        "planner.cost:cost",
        "Compare the costs of owning and renting GPUs.",
    ),
    Command("plan capacity", "planner.capacity:capacity", CAPACITY),
    Command(
        "plan reliability",
        "planner.reliability:reliability",
        "Compute how often a run fails, and how many spare nodes it needs.",
    ),
    Command("plan predict", "planner.predict:predict", PREDICT),
    Command("plan validate", "planner.predict:validate", VALIDATE),
    Command("plan prices", "planner.prices:prices", PRICES),
    Command(
        "plan catalog", "planner.catalog:catalog", "Show the numbers that plans use."
    ),
    Command(
        "report usage",
        "report:usage",
        "Report which users held GPUs, and how busy these were.\n\n"
        "Utilisation is the share of the measured time in which a kernel ran.",
    ),
    Command(
        "report waste", "report:waste", "Report GPU-hours without progress, and why."
    ),
    Command(
        "report cost",
        "report:cost",
        "Report the cost of GPU-hours and energy, and of waste.\n\n"
        "The price of a GPU-hour is the node's label `price`, else the rate of the "
        "queue's budget, else the list price of clouds (USD, in a separate column).",
    ),
    Command(
        "report lent",
        "lent_report:lent",
        "Report what the sleeping replicas of services have lent.",
    ),
    Command(
        "report goodput",
        "report:goodput",
        "Report which share of the allocated time produced training steps.",
    ),
    Command(
        "import sacct",
        "imports:sacct",
        "Import jobs that Slurm ran, for forecasts and replays.\n\n"
        "A job that was imported before is left out.",
    ),
    Command(
        "import kueue",
        "imports:kueue",
        "Import jobs that Kueue ran, for forecasts and replays.\n\n"
        "A workload that was imported before "
        "is left out. Its namespace becomes its user.",
    ),
    Command("node ls", "nodes:ls", "List the nodes."),
    Command("node show", "nodes:show", "Show one node and its GPUs."),
    Command("node cordon", "nodes:cordon", "Stop giving a node new work."),
    Command(
        "node drain",
        "nodes:drain",
        "Stop giving a node new work, and move running jobs.",
    ),
    Command("node uncordon", "nodes:uncordon", "Give a node new work again."),
    Command(
        "node clear",
        "nodes:clear",
        "Mark the faults of a node as repaired.\n\n"
        "The node takes work again, unless a person cordoned it.",
    ),
    Command(
        "node token",
        "joining:create_token",
        "Create a join token, and print the command with which a machine joins.\n\n"
        "The command is "
        "printed only now: the cluster stores only a hash of the token.",
    ),
    Command(
        "node rm",
        "joining:rm",
        "Remove a node that has joined, and revoke its token.",
        alias="remove",
    ),
    Command(
        "node dead",
        "joining:dead",
        "Declare a silent node dead, so that its jobs start on other nodes.\n\n"
        "Use it only if the machine is off or was restarted; otherwise jobs that "
        "still run there run twice.",
    ),
    Command(
        "node label",
        "nodes:label",
        "Set and remove labels of a node.\n\n"
        "Waiting jobs use them at once; running jobs continue.",
    ),
    Command(
        "doctor look",
        "doctor_checks:look",
        "Examine this machine and the cluster; nothing is changed.\n\n"
        "The exit code is 1 if something is wrong.",
    ),
    Command(
        "doctor gpu",
        "doctor:gpu",
        "Test GPUs, memory, disk and clock of idle nodes.\n\n"
        "A node that fails gets no new jobs until "
        "it passes a test or you run corral node clear.",
    ),
    Command(
        "doctor net",
        "doctor:net",
        "Test the links between idle nodes, each node with the next one.\n\n"
        "A node whose links are all slow gets no new jobs.",
    ),
    Command(
        "doctor data",
        "doctor:data",
        "Measure how fast nodes read a directory, and whether all see the same "
        "files.\n\n"
        "Nothing is written to the directory.",
    ),
    Command("alert ls", "alerts:ls", "List open alerts and their receivers."),
    Command("alert test", "alerts:try_out", "Send a test message to each receiver."),
    Command(
        "secret set",
        "secrets:put",
        "Set a secret; its value comes from a prompt or standard input.",
    ),
    Command("secret ls", "secrets:ls", "List the names of secrets."),
    Command("secret rm", "secrets:rm", "Remove a secret."),
    Command("user add", "users:add", "Add a user."),
    Command("user ls", "users:ls", "List the users.", alias="list"),
    Command("user show", "users:show", "Show one user and their tokens."),
    Command("user set", "users:put", "Change a user's role, quotas or access."),
    Command(
        "user link",
        "log_ins:link",
        "Link an identity of the OpenID Connect provider to a user.",
    ),
    Command(
        "user unlink",
        "log_ins:unlink",
        "Remove the link between a user and an identity of the provider.",
    ),
    Command(
        "user pending",
        "log_ins:pending",
        "List refused log-ins whose identity is not linked to a user yet.",
    ),
    Command(
        "user rm",
        "users:rm",
        "Remove a user with their tokens and secrets.\n\n"
        "A user with unfinished jobs is not removed. Secrets for all users stay, and "
        "become yours.",
        alias="remove",
    ),
    Command("token create", "users:create_token", "Create a token and print it once."),
    Command(
        "token ls", "users:ls_tokens", "List tokens of users and nodes.", alias="list"
    ),
    Command("token revoke", "users:revoke_token", "Revoke tokens at once."),
    Command(
        "key rotate",
        "keys:rotate",
        "Encrypt all secrets with a new key.\n\n"
        "Tokens of running jobs stay valid for at most 30 days.",
    ),
    Command(
        "key generate",
        "keys:generate",
        "Create a key pair for encrypted backups.\n\n"
        "The private identity is written to FILE, and the "
        "public recipient is printed: corral backup --recipient RECIPIENT.",
    ),
    Command(
        "backup",
        "backup:backup",
        "Write the whole cluster into one file.\n\n"
        "The head may run meanwhile. The file contains jobs, queues, users, tokens "
        "(as hashes), secrets with their key, the head's address and certificate, and "
        "the workdirs of unfinished jobs; not logs and checkpoints.",
        CLUSTER,
    ),
    Command(
        "restore",
        "backup:restore",
        "Restore the cluster of a backup into a directory.\n\n"
        "The directory must not contain a cluster; corral up then starts it. Jobs "
        "that ended since the backup may run again, and jobs submitted since then are "
        "unknown.",
        CLUSTER,
    ),
    Command(
        "slurm-shims",
        "slurm.install:install",
        "Install Slurm's commands (sbatch, squeue, ...) for this cluster.",
        CLUSTER,
    ),
    Command(
        "unit install",
        "systemd_units:install",
        "Install a unit of systemd that keeps the head, or this node's agent, running.",
    ),
    Command(
        "unit remove",
        "systemd_units:remove",
        "Remove the unit of systemd; running jobs continue.",
    ),
    Command("gateway", "gateway:gateway", GATEWAY, CLUSTER),
    Command(
        "audit", "audit:audit", "Show the audit log, newest entries last.", CLUSTER
    ),
    Command("completion install", "completion:install", "Install shell completion."),
    Command(
        "completion show", "completion:show", "Print the completion script of a shell."
    ),
    Command(
        "--install-completion",
        "completion:install",
        "Install shell completion.",
        MORE,
        show=False,
    ),
)
