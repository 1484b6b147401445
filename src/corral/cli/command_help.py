"""Help of commands that needs more than a line."""

from typing import Final

RUN: Final = (
    "Run a command as a job and follow it to its end.\n\n"
    "A single word after -- is run as a shell command line; several words are a "
    "command and its arguments, passed on unchanged. If no head runs, a head is "
    "started on this machine. Ctrl-C ends only the output; the job continues."
)

APPLY: Final = """Submit the jobs of a spec file (YAML or TOML).

A batch script for Slurm is also accepted.

A YAML file can contain several jobs: one document each, separated by lines of ---.
Either all of them are submitted or none. Services (`kind: service`) and queues (`kind:
queues`) are written into files of their own. In `after`, a job names jobs that must be
done first:

    name: prepare
    workdir: .
    run: ./prepare.sh
    ---
    name: train
    workdir: .
    after: prepare
    run: ./train.sh
"""

ALERTS: Final = """List alerts, and test their receivers.

To receive alerts, write alerts.yaml in the cluster's directory (default: ~/.corral).
The head reads the file again when it changes. For example, with the default rules:

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

To disable an alert, set its rule to off; this applies also to job_failed, job_hung, loss_nan
and node_kept_back, which are on by default. In quiet hours, only critical alerts are sent:
nodes that are down, and disks that are full.
"""

GATEWAY: Final = """Serve the replicas of services to OpenAI clients.

`corral up` starts a gateway by itself when the first service exists. Start another one on a further
machine with --join, or one without a head with --routes, a file that is read again when it has
changed. Requests go to the replica with the least work, and to another one if it fails. SIGTERM
ends the gateway after the requests under way; SIGUSR2 starts a successor that takes over the
listening socket.
"""

SERVICES: Final = """List services, scale them, roll them back, stop them, and chat with them.

A service answers requests of OpenAI clients with replicas, which are jobs that it makes.
To start one, run corral serve, or apply a file. For example:

    kind: service
    name: chat
    model: hf://org/name
    engine: vllm
    replicas: 1..4
    resources: {gpu: "h100:2"}
    scale: {ttft_p90: 500ms}
"""

MODELS: Final = """Manage the models that nodes keep on their disks.

A node fetches the model of a job before the job starts, and keeps it for the next one.
Models that were not used for long are removed when others need the room.
"""
BATCHES: Final = """Send many requests of a file to a service, and collect the answers.

Each line of the file is a request in the form of OpenAI's Batch API. For example:

    {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "1 + 1 ="}}

The answers are in output.jsonl of the batch's job, and lines that failed in errors.jsonl:

    corral cp JOB:output.jsonl .
"""

SERVE: Final = (
    "Serve a model, and follow the service until a replica is ready.\n\n"
    "The options are those of a document of kind: service; --dry-run prints it. If the "
    "service exists, it is changed. Ctrl-C ends only the output; the service continues."
)
