// Written by docs/generate.py: change the code, then run `make docs`.

export interface PlanField {
  name: string;
  kind: "string" | "integer" | "number" | "boolean" | "list" | "object";
  required: boolean;
  optional: boolean;
  preset: unknown;
}

export interface AlertRow {
  key: string;
  kind: string;
  next: string;
  severity: string;
  since: number;
  text: string;
}

export interface Alerts {
  alerts: AlertRow[];
  receivers: ReceiverRow[];
  trouble: string;
}

export interface AlertsSent {
  sent: string[];
}

export interface Attempt {
  cause: string;
  culprit: string;
  ended_at: number | null;
  evidence: string;
  exit_code: number | null;
  failure: string | null;
  idle_since: number | null;
  last_step: number | null;
  master_port: number;
  next: string;
  nodes: string[];
  number: number;
  placed_at: number;
  quote: string;
  resume_step: number | null;
  running_at: number | null;
  seats: Seat[];
}

export interface Audit {
  entries: AuditEntry[];
}

export interface AuditEntry {
  accepted: boolean;
  at: number;
  by: string;
  detail: string;
  number: number;
  on: string;
  token: string | null;
  what: string;
}

export interface Bottleneck {
  advice: string;
  bound: string;
  text: string;
}

export interface BudgetRow {
  amount: number;
  effect: string;
  is_spent: boolean;
  left: number;
  renewed_at: number | null;
  runs_out_at: number | null;
  since: number;
  spent: number;
  unit: string;
}

export interface CheckAsked {
  kinds: ("matmul" | "memory" | "all-reduce" | "link" | "disk" | "clock" | "data")[];
  nodes: string[];
  paths: string[];
  patience_seconds: number;
  seconds: number;
}

export interface CheckResult {
  at: number;
  checkup: string;
  device: string;
  expected: number | null;
  gpu: number | null;
  kind: string;
  past: number[];
  result: string;
  text: string;
  unit: string;
  value: number | null;
}

export interface CheckWaiting {
  at: number;
  begun_at: number | null;
  by: string;
  id: string;
  kinds: string[];
  peer: string;
  until: number;
}

export interface CheckedNode {
  health: string;
  jobs: string[];
  node: string;
  results: CheckResult[];
  state: string;
}

export interface Checkpoint {
  at: number;
  attempt: number;
  manifest_sha256: string;
  path: string;
  quarantined: string;
  seconds: number;
  size_bytes: number;
  stall_seconds: number;
  step: number;
}

export interface Checkpoints {
  checkpoints: Checkpoint[];
}

export interface Checkup {
  id: string;
  nodes: CheckedNode[];
  unable: string[];
}

export interface Cluster {
  engine: string;
  id: string;
  term: number;
}

export interface ClusterRequestPlan {
  async_saves: boolean;
  carbon: number | null;
  data_mb_per_gpu_s: number | null;
  fabric: string;
  gpu: string;
  gpus: number;
  idle: number;
  kwh: number | null;
  load: number | null;
  oversubscription: number;
  parameters: number | null;
  pue: number | null;
  rack_kw: number | null;
  rail_only: boolean;
  read_gb_per_s: number | null;
  region: string;
  save_minutes: number;
  switch: string;
  write_gb_per_s: number | null;
}

export interface CostRequestPlan {
  assume: Record<string, number>;
  budget_usd: number | null;
  cloud: string;
  demand: unknown[][];
  egress_tb_month: number;
  gpu: string;
  gpus: number;
  node_gpus: number | null;
  region: string;
  storage_tb: number | null;
  utilisation: number;
  years: number;
}

export interface DiskSample {
  free_bytes: number;
  path: string;
  read_only: boolean;
  silent: boolean;
  total_bytes: number;
}

export interface Ending {
  ends: Span | null;
  ends_by: number | null;
  kin: number;
  percent: number | null;
  text: string;
}

export interface Event {
  at: number;
  attempt: number | null;
  job: string | null;
  kind: string;
  node: string | null;
  number: number;
  text: string;
}

export interface Events {
  events: Event[];
}

export interface Failed {
  attempt: number;
  culprit: string;
  evidence: string;
  failure: string;
  next: string;
  quote: string;
  text: string;
}

export interface FitRequestPlan {
  batch: number;
  context: number;
  gpu: string;
  gpus: number | null;
  kv_precision: string;
  model: string;
  precision: string;
  rank: number;
}

export interface Forecast {
  ends: Span;
  gives_up_at: number | null;
  held_percent: number | null;
  instead: Instead[];
  is_too_late: boolean;
  known_percent: number;
  percent: number;
  runs: number;
  starts: Span;
  text: string;
  told: number;
}

export interface Form {
  cpus_per_node: number;
  gpu_type: string | null;
  gpus_per_node: number;
  least_nodes: number;
  memory_bytes_per_node: number;
  nodes: number;
}

export interface GpuProcess {
  attempt: number | null;
  job: string | null;
  memory_bytes: number;
  pid: number;
}

export interface GpuSample {
  decoder_utilisation: number | null;
  ecc_aggregate_corrected: number | null;
  ecc_aggregate_uncorrected: number | null;
  ecc_volatile_corrected: number | null;
  ecc_volatile_uncorrected: number | null;
  encoder_utilisation: number | null;
  energy_joules: number | null;
  index: number;
  lost: boolean;
  memory_clock_mhz: number | null;
  memory_temperature_celsius: number | null;
  memory_total_bytes: number | null;
  memory_used_bytes: number | null;
  memory_utilisation: number | null;
  nvlink_bytes: number | null;
  nvlink_received_bytes_per_second: number | null;
  nvlink_sent_bytes_per_second: number | null;
  nvlinks: NvLink[];
  pcie_generation: number | null;
  pcie_generation_most: number | null;
  pcie_received_bytes_per_second: number | null;
  pcie_replays: number | null;
  pcie_sent_bytes_per_second: number | null;
  pcie_width: number | null;
  pcie_width_most: number | null;
  power_limit_watts: number | null;
  power_watts: number | null;
  pretend: boolean;
  processes: GpuProcess[];
  remap_failed: boolean | null;
  remap_pending: boolean | null;
  remapped_corrected: number | null;
  remapped_uncorrected: number | null;
  silent: boolean;
  sm_clock_mhz: number | null;
  temperature_celsius: number | null;
  throttle: string[];
  type: string;
  utilisation: number | null;
  uuid: string;
}

export interface Gpus {
  away: number;
  free: number;
  taken: number;
  total: number;
  used: number;
}

export interface GpusNow {
  cost_per_hour: number;
  nodes: GpusOfNode[];
  unpriced_gpus: number;
}

export interface GpusOfNode {
  at: number | null;
  holders: string[];
  index: number[];
  memory: (number | null)[];
  node: string;
  power_watts: (number | null)[];
  signs: string[];
  temperature_celsius: (number | null)[];
  utilisation: (number | null)[];
}

export interface HTTPValidationError {
  detail: ValidationError[];
}

export interface Head {
  pid: number;
  started_at: number;
  url: string;
  version: string;
}

export interface HeadDown {
  jobs: "leave" | "stop";
}

export interface ImportBody {
  jobs: ImportedJob[];
}

export interface ImportDone {
  known: number;
  new: number;
}

export interface ImportedJob {
  ended_at: number;
  gpu_type: string | null;
  gpus_per_node: number;
  id: string;
  limit_seconds: number | null;
  name: string;
  nodes: number;
  priority: number;
  queue: string;
  seconds: number;
  started_at: number;
  state: string;
  submitted_at: number;
  user: string;
}

export interface ImportedJobs {
  jobs: ImportedJob[];
}

export interface Instead {
  change: string;
  starts: Span;
  stops: string;
}

export interface Job {
  array: string | null;
  array_index: number | null;
  attempt: number;
  ended_at: number | null;
  exit_code: number | null;
  held_gpus: number | null;
  id: string;
  infra_retries: number;
  max_duration_seconds: number | null;
  name: string;
  nodes: string[];
  owner: string;
  priority: number;
  progress: Progress | null;
  queue: string;
  reason: string;
  reason_code: string;
  shape: Shape;
  since: number;
  started_at: number | null;
  state: string;
  submitted_at: number;
  user_retries: number;
}

export interface JobChange {
  max_duration_seconds: number | null;
  name: string | null;
  priority: number | null;
  queue: string | null;
}

export interface JobDetail {
  array: string | null;
  array_index: number | null;
  attempt: number;
  attempts: Attempt[];
  begins_at: number | null;
  bottleneck: Bottleneck | null;
  checkpoints: Checkpoint[];
  ended_at: number | null;
  exit_code: number | null;
  forms: Form[];
  held_gpus: number | null;
  id: string;
  infra_retries: number;
  max_duration_seconds: number | null;
  name: string;
  nodes: string[];
  owner: string;
  per: string;
  place: Place;
  preemptible: boolean;
  priority: number;
  progress: Progress | null;
  queue: string;
  reason: string;
  reason_code: string;
  receipts: Receipt[];
  run: string | null;
  shape: Shape;
  since: number;
  started_at: number | null;
  starts_by: number | null;
  state: string;
  submitted_at: number;
  user_retries: number;
  warned: Warned | null;
  whose: string;
  workdir: string | null;
}

export interface JobSignal {
  signal: string;
  to: "ranks" | "batch" | "all" | null;
}

export type JobState = "HELD" | "QUEUED" | "STARTING" | "RUNNING" | "STOPPING" | "RECOVERING" | "SUSPENDED" | "DONE" | "FAILED" | "CANCELLED";

export interface JobSubmit {
  key: string;
  specs: Record<string, unknown>[];
}

export interface Jobs {
  jobs: Job[];
}

export interface JoinNeeds {
  engine: string;
  python: string;
  ray: string;
}

export interface JoinTokenCreate {
  expires_seconds: number;
  uses: number;
}

export interface JoinTokenMade {
  expires_at: number;
  fingerprint: string;
  id: string;
  token: string;
  url: string;
  uses: number;
}

export interface Kept {
  sha256: string;
  size_bytes: number;
}

export interface KeptRow {
  job: string;
  since: number;
  victims: string[];
}

export interface LinkMade {
  expires_at: number;
  url: string;
}

export interface Node {
  address: string;
  closed: string;
  cordoned: boolean;
  cordoned_by: string;
  cpus: number;
  draining: boolean;
  gpus: NodeGpus;
  health: string;
  heard: boolean;
  held_whole_by: string | null;
  id: string;
  jobs: string[];
  labels: Record<string, string>;
  liveness: string;
  memory_bytes: number;
  since: number;
  suspect: boolean;
  taken_cpus: number;
  taken_memory_bytes: number;
  why: string;
}

export interface NodeAilment {
  bar: string;
  code: number | null;
  count: number;
  device: string;
  excused: boolean;
  gpu: number | null;
  kind: string;
  last: number;
  mended_at: number | null;
  remedy: string;
  since: number;
  text: string;
  to_mend: string;
}

export interface NodeDetail {
  address: string;
  ailments: NodeAilment[];
  boot: string;
  checked_at: number | null;
  checks: CheckResult[];
  checkups: CheckWaiting[];
  closed: string;
  containment: string;
  cordoned: boolean;
  cordoned_by: string;
  cpus: number;
  devices: NodeGpu[];
  draining: boolean;
  gpu_shares: boolean;
  gpus: NodeGpus;
  health: string;
  heard: boolean;
  held_whole_by: string | null;
  id: string;
  jobs: string[];
  labels: Record<string, string>;
  liveness: string;
  memory_bytes: number;
  private_root: boolean;
  sample: NodeSample | null;
  shared: string[];
  since: number;
  suspect: boolean;
  taken_cpus: number;
  taken_memory_bytes: number;
  why: string;
}

export interface NodeGpu {
  index: number;
  jobs: string[];
  memory_bytes: number;
  numa: number;
  pretend: boolean;
  slices: number;
  taken: boolean;
  type: string;
  uuid: string;
}

export interface NodeGpus {
  free: number;
  held: number[];
  taken: number;
  total: number;
  types: string[];
  utilisation: (number | null)[];
}

export interface NodeJoin {
  node: string;
  sha256: string;
}

export interface NodeJoined {
  cluster: string;
  node: string;
  ray: RayInvitation | null;
  trusted: string;
  url: string;
}

export interface NodeLabels {
  labels: Record<string, string | null>;
}

export interface NodeSample {
  at: number;
  clock_offset_seconds: number | null;
  cpu_utilisation: number | null;
  disks: DiskSample[];
  gpus: GpuSample[];
  memory_total_bytes: number | null;
  memory_used_bytes: number | null;
  ports: PortSample[];
  pressure_cpu: number | null;
  pressure_io: number | null;
  pressure_memory: number | null;
  seconds: number;
  silent: string[];
}

export interface Nodes {
  nodes: Node[];
}

export interface NvLink {
  crc_errors: number;
  link: number;
  recoveries: number;
  replays: number;
  up: boolean;
}

export interface OneHead {
  leads: boolean;
  name: string;
  silent_seconds: number;
  url: string;
}

export interface Place {
  apart_from: string[];
  constraints: string[];
  exclusive: boolean;
  topology: string;
}

export interface Plan {
  plan: PlannedJob[];
}

export interface PlanAnswer {
  band: number | null;
  high: number | null;
  low: number | null;
  name: string;
  note: string;
  unit: string;
  value: string | number | boolean | null;
}

export interface PlanColumn {
  name: string;
  unit: string;
}

export interface PlanReport {
  answers: PlanAnswer[];
  assumed: string[];
  data: Record<string, unknown>;
  sources: string[];
  tables: PlanTable[];
  title: string;
  verdict: string;
  warnings: string[];
}

export interface PlanTable {
  columns: PlanColumn[];
  note: string;
  rows: ((string | number | boolean | null)[])[];
  title: string;
}

export interface PlannedJob {
  code: string;
  environment: Record<string, string>;
  forecast: Forecast | null;
  forms: Form[];
  image: string | null;
  kind: string;
  max_duration_seconds: number | null;
  name: string;
  place: Place | null;
  preemptible: boolean;
  priority: number;
  queue: string;
  ranks: number;
  reason: string;
  seats: Seat[];
  shape: Shape;
  starts_now: boolean;
  stops: string[];
  suggestions: string[];
  warned: Warned | null;
}

export interface PortSample {
  bits_per_second: number | null;
  downs: number;
  errors: number;
  kind: string;
  name: string;
  received_bytes: number;
  sent_bytes: number;
  up: boolean;
}

export interface Progress {
  at: number;
  compute_seconds: number;
  data_seconds: number;
  first_step: number;
  loss: number | null;
  samples_per_second: number | null;
  save_seconds: number;
  step: number;
  until: number | null;
}

export interface QueueBody {
  fields: Record<string, unknown>;
}

export interface QueueChanges {
  changes: string[];
  warnings: string[];
}

export interface QueueDetail {
  borrowed: number;
  budget: BudgetRow | null;
  depth: number;
  due: number;
  form: Record<string, unknown>;
  kept: KeptRow[];
  name: string;
  owes: number;
  own: number;
  parent: string | null;
  running: number;
  share: number;
  used: number;
  used_gpu_hours: number;
  users: UserRow[];
  waiting: number;
}

export interface QueueRow {
  borrowed: number;
  budget: BudgetRow | null;
  depth: number;
  due: number;
  form: Record<string, unknown>;
  name: string;
  owes: number;
  own: number;
  parent: string | null;
  running: number;
  share: number;
  used: number;
  used_gpu_hours: number;
  waiting: number;
}

export interface Queues {
  guard_seconds: number;
  half_life_seconds: number;
  pod_patience_seconds: number;
  queues: QueueRow[];
  rack_patience_seconds: number;
  relocation: RelocationRow | null;
}

export interface QueuesBody {
  document: Record<string, unknown>;
}

export interface RayInvitation {
  address: string;
  folder: string;
  token: string;
}

export interface Receipt {
  attempt: number;
  cause: string;
  culprit: string;
  evidence: string;
  gpu_seconds_lost: number;
  kind: string;
  others: string[];
  resumed_from_step: number | null;
  seconds_lost: number | null;
  seen_at: number;
  steps_lost: number | null;
  text: string;
}

export interface ReceiverRow {
  name: string;
  trouble: string;
}

export interface ReliabilityRequestPlan {
  async_saves: boolean;
  availability: number;
  counted: number | null;
  crews: number | null;
  days: number;
  gpu: string;
  gpus: number;
  interval_minutes: number | null;
  model: string;
  node_gpus: number | null;
  parameters: number | null;
  rate: number | null;
  repair_hours: number | null;
  restart_minutes: number | null;
  stall_seconds: number | null;
  usd_per_gpu_hour: number | null;
  write_gb_per_s: number | null;
}

export interface RelocationRow {
  gpu_hours: number;
  pause_seconds: number;
  spent_gpu_hours: number;
}

export interface Report {
  by: "job" | "user" | "queue" | "gpu-type";
  columns: ReportColumn[];
  days: ReportDay[];
  first: string;
  kind: "usage" | "waste" | "cost" | "goodput";
  last: string;
  rest: number;
  rows: ReportRow[];
  total: (number | null)[];
}

export interface ReportColumn {
  name: string;
  unit: string;
}

export interface ReportDay {
  day: string;
  values: (number | null)[];
}

export interface ReportRow {
  more: string;
  name: string;
  values: (number | null)[];
}

export interface Seat {
  cpus: number;
  exclusive: boolean;
  gpu_count: number;
  gpus: number[];
  memory_bytes: number;
  node: string;
  slices: string[];
}

export interface Secret {
  at: number;
  by: string;
  name: string;
}

export interface SecretValue {
  value: string;
}

export interface Secrets {
  secrets: Secret[];
}

export interface Series {
  fields: Record<string, (number | null)[]>;
  key: string;
  times: number[];
}

export interface ServeRequestPlan {
  engine: string;
  gpu: string;
  input: number;
  itl_p90: number | null;
  kv_precision: string;
  model: string;
  output: number;
  precision: string;
  price: string;
  qps: number;
  shared: number;
  ttft_p90: number | null;
  usd_per_gpu_hour: number | null;
}

export interface Session {
  cluster: string;
  engine: string;
  expires_at: number | null;
  role: string;
  user: string;
  version: string;
}

export interface Shape {
  cpus_per_node: number;
  gpu_type: string | null;
  gpus_per_node: number;
  memory_bytes_per_node: number;
  nodes: number;
}

export interface SignOn {
  provider: string | null;
}

export interface Span {
  high_seconds: number | null;
  low_seconds: number;
  text: string;
}

export interface Status {
  cluster: Cluster;
  gpus: Gpus;
  head: Head;
  heads: OneHead[];
  jobs: Record<string, number>;
  nodes: Node[];
  warnings: string[];
}

export interface Token {
  created_at: number;
  expires_at: number | null;
  id: string;
  node: string | null;
  revoked_at: number | null;
  role: string;
  state: "valid" | "expired" | "revoked" | "used";
  used_at: number | null;
  user: string;
}

export interface TokenCreate {
  expires_seconds: number | null;
  role: "viewer" | "user" | "operator" | "admin" | null;
  user: string | null;
}

export interface TokenMade {
  expires_at: number | null;
  id: string;
  role: string;
  token: string;
  user: string;
}

export interface Tokens {
  tokens: Token[];
}

export interface TrainRequestPlan {
  batch: number;
  context: number;
  context_parallel: number;
  fabric: string;
  gpu: string;
  gpus: number;
  library: string;
  lora: boolean;
  model: string;
  no_shard: boolean;
  pipeline: number;
  precision: string;
  rank: number;
  tensor: number;
  tokens: number;
  usd_per_gpu_hour: number | null;
}

export interface User {
  created_at: number;
  disabled: boolean;
  name: string;
  role: string;
}

export interface UserAdd {
  name: string;
  role: "viewer" | "user" | "operator" | "admin";
}

export interface UserRow {
  used: number;
  used_gpu_hours: number;
  user: string;
}

export interface UserSet {
  disabled: boolean | null;
  role: "viewer" | "user" | "operator" | "admin" | null;
}

export interface Users {
  users: User[];
}

export interface ValidationError {
  ctx: Record<string, unknown>;
  input: unknown;
  loc: (string | number)[];
  msg: string;
  type: string;
}

export interface Warned {
  before_seconds: number;
  signal: string | null;
}

export interface Why {
  assumed: string;
  code: string;
  ending: Ending | null;
  failed: Failed | null;
  forecast: Forecast | null;
  holders: string;
  id: string;
  name: string;
  place: number | null;
  reason: string;
  receipts: Receipt[];
  slurm: string;
  state: string;
  suggestions: string[];
  waiting: number;
  whose: string;
}

export const PLAN_FORMS: Record<string, PlanField[]> = {
  "cluster": [
    {
      "name": "gpu",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "async_saves",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false
    },
    {
      "name": "carbon",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "data_mb_per_gpu_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "fabric",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "idle",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.01
    },
    {
      "name": "kwh",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "load",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "oversubscription",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 1.0
    },
    {
      "name": "parameters",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "pue",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "rack_kw",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "rail_only",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false
    },
    {
      "name": "read_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "region",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "save_minutes",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 30.0
    },
    {
      "name": "switch",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "write_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    }
  ],
  "cost": [
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "assume",
      "kind": "object",
      "required": false,
      "optional": false,
      "preset": null
    },
    {
      "name": "budget_usd",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "cloud",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "demand",
      "kind": "list",
      "required": false,
      "optional": false,
      "preset": []
    },
    {
      "name": "egress_tb_month",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.0
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm"
    },
    {
      "name": "node_gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "region",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "storage_tb",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "utilisation",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.7
    },
    {
      "name": "years",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 3.0
    }
  ],
  "model": [
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "batch",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16
    },
    {
      "name": "context",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 8192
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm"
    },
    {
      "name": "gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "kv_precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "rank",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16
    }
  ],
  "reliability": [
    {
      "name": "days",
      "kind": "number",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "async_saves",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false
    },
    {
      "name": "availability",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.99
    },
    {
      "name": "counted",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "crews",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm"
    },
    {
      "name": "interval_minutes",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "model",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "node_gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "parameters",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "rate",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "repair_hours",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "restart_minutes",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "stall_seconds",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "write_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    }
  ],
  "serve": [
    {
      "name": "input",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "output",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "qps",
      "kind": "number",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "engine",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "vllm"
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "itl_p90",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "kv_precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "price",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "on_demand"
    },
    {
      "name": "shared",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0
    },
    {
      "name": "ttft_p90",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    }
  ],
  "train": [
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null
    },
    {
      "name": "batch",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0
    },
    {
      "name": "context",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 4096
    },
    {
      "name": "context_parallel",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0
    },
    {
      "name": "fabric",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm"
    },
    {
      "name": "library",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "megatron-core"
    },
    {
      "name": "lora",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false
    },
    {
      "name": "no_shard",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false
    },
    {
      "name": "pipeline",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": ""
    },
    {
      "name": "rank",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16
    },
    {
      "name": "tensor",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0
    },
    {
      "name": "tokens",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 1000000000000.0
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null
    }
  ]
};
