"""All commands of the command line, each with its function, its one-line help, and the
heading under which help shows it."""

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

PRICES: Final = """What GPUs cost by the hour, and to buy.

A list of one's own, for --prices FILE, is a CSV file of a price a line:

    subject,quantity,value,unit,source,date
    aws:h100-sxm,on_demand,3.10,USD a GPU-hour,our contract,2026-10-01
    buy:h100-sxm,server,290000,USD,an offer for a node of 8,2026-10-01

CLOUD:GPU is rented on_demand, reserved_1y, reserved_3y or spot.
Of buy:GPU a gpu, a server (with all of its GPUs) or a used_gpu is sold.
What the list does not say, the catalog does, which --csv prints to begin with.
"""


ALERTS: Final = """List alerts, and test their receivers.

The receivers are in alerts.yaml in the cluster's directory (~/.corral); the head reads it again
when it has changed:

    kind: alerts
    to:
      - name: team
        slack: https://hooks.slack.com/services/...
        quiet: {from: "22:00", until: "07:00", zone: Europe/Berlin}
      - name: pager
        webhook: https://pager.example.org/corral
        secret_file: pager.secret
        least: critical
      - name: mail
        of: [job_failed, job_stuck]
        email: {to: [ops@example.org], from: corral@example.org, host: smtp.example.org}
        # also port: 587, security: starttls (or tls, or none), user: NAME, password_file: FILE
    rules: {job_stuck: 30m, node_down: 1m, queue_starved: 1d, budget_low: 10%, disk_full: 5%}

These rules hold by themselves; each may be off, as may job_failed, loss_nan and
node_kept_back. Quiet hours let through what is critical: nodes that are down and disks that are
full.
"""

GATEWAY: Final = """Serve the replicas of a routes file to OpenAI clients.

Requests go to the replica with the least work, and to another one if it fails. The file is read
again when it has changed. SIGTERM ends the gateway after the requests under way; SIGUSR2 starts a
successor that takes over the listening socket.

For example: corral gateway --routes routes.json
Or: corral gateway --routes routes.json --host 0.0.0.0 --port 80 --workers 4
"""

PREDICT: Final = """Predict each row of a table.

A table is CSV with a header, and has these columns at least, by its kind:

    training: model, gpu, n_gpus, seq_len
    memory_ci: family, gpu, layers, hidden, heads, seq_len, micro_batch, global_batch
    inference: model, gpu, n_gpus, batch_or_concurrency, input_len, output_len
    collectives: collective, gpu, n_gpus, size_bytes

Others are read where they are there: layers, dp, tp, pp, precision, engine, interconnect, ...
Of an empty cell the answer says what was assumed.

For example: corral plan predict runs.csv --kind training --out predicted.csv
"""

CAPACITY: Final = """Compute how many GPUs will be needed.

From runs that are known, or from a history. With a history: a forecast of the demand with its
intervals, and with --wait the fewest GPUs on which a share of the jobs waits no longer than that.

For example: corral plan capacity --run-hours 20 --runs 30 --run-gpus 16
Or: corral plan capacity --history jobs.csv --wait 30m
"""

VALIDATE: Final = """Hold predictions against measurements.

A table is one of plan predict with what was measured, in one of these columns, by its kind:

    training: step_time_s, tokens_per_s_per_gpu, memory_gb_per_gpu
    memory_ci: mem_max_allocated_gb, iter_time_s_median
    inference: output_tokens_per_s_total, ttft_ms, tpot_ms, latency_ms
    collectives: time_us

For example: corral plan validate training runs.csv
"""


def _with_plan_example(what: str, example: str) -> str:
    return f"{what}\n\nFor example: corral plan {example}"


GROUPS: Final = {
    "queue": "List and change queues; alone, list jobs as ps does.",
    "import": "Import the history of another system.",
    "plan": """Plan hardware: what fits, how fast, what to build, buy or rent, how often it fails.

Numbers may be written 8192, 1e6, 70B or 15T: K, M, B and T are thousands to trillions.
""",
    "report": "Report usage, waste, cost and goodput of GPUs.",
    "node": "List nodes, add and remove them, and take them out of service.",
    "doctor": """Test nodes: GPUs, links and data directories; alone, examine the whole cluster.

Alone, it looks at this machine and the whole cluster, and says what to do.
""",
    "alert": ALERTS,
    "secret": "Store secrets for jobs; they are never shown again.",
    "user": "Say who may do what.",
    "token": "Make, list and revoke what lets people and programs in.",
    "key": "Rotate the cluster's key, and create keys for backups.",
    "service": "Let systemd keep the head, or a node's agent, running.",
    "completion": "Complete commands in the shell.",
}


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `name` includes its group; `target` is module:function within
    corral.cli."""

    name: str
    target: str
    help: str
    heading: str = JOBS
    alias: str | None = None
    show: bool = True


COMMANDS: Final = (
    Command("up", "cluster:up", "Start a cluster on this machine.", CLUSTER),
    Command("down", "cluster:down", "Stop the head and its agents.", CLUSTER),
    Command(
        "join", "joining:join", "Join this machine to a cluster as a node.", CLUSTER
    ),
    Command("leave", "joining:leave", "Remove this machine from its cluster.", CLUSTER),
    Command(
        "status",
        "cluster:status",
        "Show the head, the nodes and what they hold.",
        CLUSTER,
    ),
    Command("top", "top.command:top", "Show nodes, GPUs and jobs, live.", CLUSTER),
    Command(
        "ui",
        "open_pages:ui",
        "Print a link that opens the pages in a browser.",
        CLUSTER,
    ),
    Command(
        "login",
        "login:login",
        "Log in to a head by its OpenID Connect provider.",
        CLUSTER,
    ),
    Command(
        "logout",
        "login:logout",
        "End the token of a log-in, and remove it here.",
        CLUSTER,
    ),
    Command("run", "submit:run", RUN),
    Command("apply", "submit:apply", APPLY),
    Command("ps", "ps:ps", "List jobs, newest first."),
    Command("show", "jobs:show", "Show one job: attempts, receipts, checkpoints."),
    Command("why", "jobs:why", "Explain the state of a job, and what would change it."),
    Command("logs", "logs:logs", "Print the output of the ranks."),
    Command("outputs", "outputs:outputs", "List the files that a job wrote."),
    Command("cp", "outputs:cp", "Copy files that a job wrote to this machine."),
    Command(
        "attach", "attach:attach", "Open a shell next to a rank, or its standard input."
    ),
    Command("stop", "jobs:stop", "Cancel jobs, or send them a signal.", alias="cancel"),
    Command("suspend", "jobs:suspend", "Save and stop jobs, to be resumed later."),
    Command("resume", "jobs:resume", "Resume suspended or held jobs."),
    Command("events", "events:events", "Show the events of one job, or of all."),
    Command(
        "metrics",
        "metrics:metrics",
        "Show time series of a job, a node, a queue or the cluster.",
    ),
    Command("checkpoints", "checkpoints:checkpoints", "List the checkpoints of a job."),
    Command("queue ls", "queues:ls", "List the queues and what they use."),
    Command("queue show", "queues:show", "Show one queue and its users."),
    Command("queue set", "queues:put", "Create or change a queue."),
    Command("queue rm", "queues:rm", "Remove a queue.", alias="remove"),
    Command(
        "simulate",
        "simulate:simulate",
        "Replay a log of jobs under one policy or several.",
    ),
    Command(
        "plan model",
        "planner.model:model",
        _with_plan_example(
            "Does a model fit, and in how many GPUs.", "model llama-3.1-70b --gpu h200"
        ),
    ),
    Command(
        "plan train",
        "planner.train:train",
        _with_plan_example(
            "How a run is best laid out, and how long it is.",
            "train llama-3.1-70b --gpus 512 --gpu h100 --tokens 1e12",
        ),
    ),
    Command(
        "plan serve",
        "planner.serve:serve",
        _with_plan_example(
            "Which GPUs serve a model within its targets.",
            "serve llama-3.1-8b --qps 20 --input 1000 --output 200 --ttft-p90 500",
        ),
    ),
    Command(
        "plan cluster",
        "planner.cluster:cluster",
        _with_plan_example(
            "What a cluster is built of.",
            "cluster --gpus 1024 --gpu h100 --fabric ib-ndr",
        ),
    ),
    Command(
        "plan cost",
        "planner.cost:cost",
        _with_plan_example(
            "Own or rent: what each costs.",
            "cost --gpus 16 --utilisation 0.6 --assume pue=1.2 kwh=0.08",
        ),
    ),
    Command("plan capacity", "planner.capacity:capacity", CAPACITY),
    Command(
        "plan reliability",
        "planner.reliability:reliability",
        _with_plan_example(
            "How often it will fail.",
            "reliability llama-3.1-405b --gpus 16384 --gpu h100 --days 54",
        ),
    ),
    Command("plan predict", "planner.predict:predict", PREDICT),
    Command("plan validate", "planner.predict:validate", VALIDATE),
    Command("plan prices", "planner.prices:prices", PRICES),
    Command(
        "plan catalog",
        "planner.catalog:catalog",
        _with_plan_example(
            "Show the numbers that plans are made of.", "catalog gpus h100"
        ),
    ),
    Command(
        "report usage",
        "report:usage",
        "Report which users held GPUs, and how busy these were.",
    ),
    Command(
        "report waste", "report:waste", "Report GPU-hours without progress, and why."
    ),
    Command(
        "report cost",
        "report:cost",
        "Report the cost of GPU-hours and energy, and of waste.",
    ),
    Command(
        "report goodput",
        "report:goodput",
        "Report which part of the allocated time brought steps.",
    ),
    Command(
        "import sacct", "imports:sacct", "Import jobs that Slurm ran, to learn from."
    ),
    Command(
        "import kueue", "imports:kueue", "Import jobs that Kueue ran, to learn from."
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
    Command("node clear", "nodes:clear", "Mark the faults of a node as repaired."),
    Command(
        "node token", "joining:create_token", "Print a line that lets machines join."
    ),
    Command("node rm", "joining:rm", "Remove a node that has joined.", alias="remove"),
    Command("node dead", "joining:dead", "Declare a silent node dead."),
    Command("node label", "nodes:label", "Set and remove labels of a node."),
    Command(
        "doctor look",
        "doctor_checks:look",
        "Look at this machine and the cluster; nothing is changed.",
    ),
    Command(
        "doctor gpu", "doctor:gpu", "Test GPUs, memory, disk and clock of idle nodes."
    ),
    Command("doctor net", "doctor:net", "Test the links between idle nodes."),
    Command("doctor data", "doctor:data", "Measure how fast nodes read a directory."),
    Command("alert ls", "alerts:ls", "List open alerts and their receivers."),
    Command("alert test", "alerts:try_out", "Send a test message to each receiver."),
    Command(
        "secret set", "secrets:put", "Set a secret from standard input or a prompt."
    ),
    Command("secret ls", "secrets:ls", "List the names of secrets."),
    Command("secret rm", "secrets:rm", "Remove a secret."),
    Command("user add", "users:add", "Add a user."),
    Command("user ls", "users:ls", "List the users.", alias="list"),
    Command("user show", "users:show", "Show one user and their tokens."),
    Command("user set", "users:put", "Change a user's role, quotas or access."),
    Command("user link", "log_ins:link", "Link an identity of the provider to a user."),
    Command(
        "user unlink", "log_ins:unlink", "Remove the link of a user to the provider."
    ),
    Command(
        "user pending", "log_ins:pending", "List refused log-ins that wait for a link."
    ),
    Command(
        "user rm", "users:rm", "Remove a user and revoke their tokens.", alias="remove"
    ),
    Command("token create", "users:create_token", "Create a token and print it once."),
    Command(
        "token ls", "users:ls_tokens", "List tokens of users and nodes.", alias="list"
    ),
    Command("token revoke", "users:revoke_token", "Revoke tokens at once."),
    Command("key rotate", "keys:rotate", "Encrypt all secrets with a new key."),
    Command(
        "key generate", "keys:generate", "Create a pair of keys for encrypted backups."
    ),
    Command(
        "backup", "backup:backup", "Write the whole cluster into one file.", CLUSTER
    ),
    Command(
        "restore",
        "backup:restore",
        "Restore the cluster of a backup into a directory.",
        CLUSTER,
    ),
    Command(
        "slurm-shims",
        "slurm.install:install",
        "Install Slurm's commands for this cluster.",
        CLUSTER,
    ),
    Command("service install", "systemd_units:install", "Let systemd keep it running."),
    Command(
        "service remove",
        "systemd_units:remove",
        "Remove the unit; running jobs continue.",
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
