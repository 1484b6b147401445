// Written by docs/generate.py: change the code, then run `make docs`.

export interface PlanField {
  name: string;
  kind: "string" | "integer" | "number" | "boolean" | "list" | "object";
  required: boolean;
  optional: boolean;
  preset: unknown;
  says: string;
  names: string[];
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
  failed: ReceiverRow[];
  sent: string[];
}

export interface AppliedView {
  change: "created" | "changed" | "revision" | "returned" | "unchanged";
  name: string;
  revision: number;
}

export interface AttemptView {
  cause: string;
  culprit: string;
  ended_at: number | null;
  evidence: string;
  exit_code: number | null;
  failed_at: string;
  failure: string | null;
  hang: HangView | null;
  idle_since: number | null;
  images: string[];
  in_place: boolean;
  last_step: number | null;
  master_port: number;
  nan_step: number | null;
  next: string;
  nodes: string[];
  number: number;
  placed_at: number;
  quote: string;
  resume_step: number | null;
  running_at: number | null;
  seats: SeatView[];
}

export interface Audit {
  entries: AuditEntryView[];
}

export interface AuditEntryView {
  accepted: boolean;
  at: number;
  by: string;
  code: string;
  count: number;
  detail: string;
  kind: string;
  link: string;
  number: number;
  on: string;
  source: string;
  token: string | null;
  what: string;
}

export interface BatchCreate {
  completion_window: string;
  corral: BatchExtras;
  endpoint: string;
  input_file_id: string;
  metadata: Record<string, string> | null;
}

export interface BatchErrorObject {
  code: string;
  line: number | null;
  message: string;
  param: string | null;
}

export interface BatchErrors {
  data: BatchErrorObject[];
  object: string;
}

export interface BatchExtras {
  checkpoint: string | null;
  concurrency: number | null;
  name: string;
  queue: string | null;
  service: string | null;
}

export interface BatchFacts {
  job: string | null;
  name: string;
  owner: string;
  service: string;
}

export interface BatchList {
  data: BatchObject[];
  first_id: string | null;
  has_more: boolean;
  last_id: string | null;
  object: string;
}

export interface BatchObject {
  cancelled_at: number | null;
  cancelling_at: number | null;
  completed_at: number | null;
  completion_window: string;
  corral: BatchFacts;
  created_at: number;
  endpoint: string;
  error_file_id: string | null;
  errors: BatchErrors | null;
  expired_at: number | null;
  expires_at: number;
  failed_at: number | null;
  finalizing_at: number | null;
  id: string;
  in_progress_at: number | null;
  input_file_id: string;
  metadata: Record<string, string> | null;
  model: string | null;
  object: string;
  output_file_id: string | null;
  request_counts: RequestCounts;
  status: BatchStatus;
  usage: Record<string, unknown>;
}

export interface BatchProgressBody {
  cached_tokens: number;
  completion_tokens: number;
  done: number;
  expired: number;
  failed: number;
  is_behind: boolean;
  lines: number;
  lines_per_second: number;
  prompt_tokens: number;
  state: string;
  tokens_left: number;
  unanswered: number;
}

export interface BatchProgressTaken {
  status: BatchStatus;
}

export type BatchStatus = "validating" | "failed" | "in_progress" | "finalizing" | "completed" | "expired" | "cancelling" | "cancelled";

export interface BottleneckView {
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

export interface ChangeRefused {
  asked: string;
  code: string;
  hint: string;
  jobs: string[];
  message: string;
  partly: boolean;
}

export interface ChangeSuggestionView {
  change: string;
  starts: TimeSpanView;
  stops: string;
}

export interface ChangedJob {
  array: string | null;
  array_index: number | null;
  id: string;
  name: string;
  state: string;
}

export interface CheckAsked {
  kinds: ("matmul" | "memory" | "all-reduce" | "link" | "disk" | "clock" | "data")[];
  max_wait_seconds: number;
  nodes: string[];
  paths: string[];
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

export interface CheckpointChange {
  attempt: number | null;
  force: boolean;
  to: "pin" | "unpin" | "rm";
}

export interface CheckpointView {
  at: number;
  attempt: number;
  kept: string[];
  manifest_sha256: string;
  metrics: Record<string, number>;
  path: string;
  pinned: boolean;
  pruned: boolean;
  quarantined: string;
  retired: string;
  seconds: number;
  size_bytes: number;
  stall_seconds: number;
  step: number;
  verified_at: number | null;
}

export interface Checkpoints {
  checkpoints: CheckpointView[];
  warnings: string[];
}

export interface Checkup {
  id: string;
  nodes: CheckedNode[];
  unable: string[];
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

export interface ClusterView {
  engine: string;
  id: string;
  term: number;
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

export interface EventView {
  at: number;
  attempt: number | null;
  job: string | null;
  kind: string;
  node: string | null;
  number: number;
  text: string;
}

export interface Events {
  events: EventView[];
}

export interface ExpectedEndView {
  ends: TimeSpanView | null;
  ends_by: number | null;
  kin: number;
  percent: number | null;
  step: number | null;
  text: string;
  until: number | null;
}

export interface Failed {
  attempt: number;
  culprit: string;
  evidence: string;
  failed_at: string;
  failure: string;
  next: string;
  quote: string;
  text: string;
}

export interface FailedJob {
  ended_at: number;
  failure: string;
  id: string;
  name: string;
  owner: string;
  queue: string;
  reason: string;
}

export interface FailedJobs {
  classes: FailureClass[];
  jobs: FailedJob[];
  more: boolean;
  since: number;
}

export interface FailureClass {
  failure: string;
  jobs: number;
  text: string;
}

export interface FileDeleted {
  deleted: boolean;
  id: string;
  object: string;
}

export interface FileList {
  data: FileObject[];
  first_id: string | null;
  has_more: boolean;
  last_id: string | null;
  object: string;
}

export interface FileObject {
  bytes: number;
  created_at: number;
  expires_at: number;
  filename: string;
  id: string;
  object: string;
  purpose: FilePurpose;
  status: string;
}

export type FilePurpose = "batch" | "batch_output";

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

export interface Form {
  cpus_per_node: number;
  gpu_type: string | null;
  gpus_per_node: number;
  least_nodes: number;
  memory_bytes_per_node: number;
  nodes: number;
}

export interface GatewayView {
  url: string;
}

export interface GoodputAdviceView {
  change: string;
  gpu_hours: number;
  list_money: number | null;
  money: number | null;
  share: number;
  text: string;
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
  graphics_active: number | null;
  index: number;
  lost: boolean;
  memory_clock_mhz: number | null;
  memory_temperature_celsius: number | null;
  memory_total_bytes: number | null;
  memory_used_bytes: number | null;
  memory_utilisation: number | null;
  needs_recovery: boolean | null;
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
  tensor_active: number | null;
  throttle: string[];
  type: string;
  utilisation: number | null;
  uuid: string;
}

export interface Gpus {
  away: number;
  free: number;
  pretend: number;
  taken: number;
  total: number;
  used: number;
}

export interface GpusNow {
  cost_per_hour: number;
  currency: string;
  list_cost_per_hour: number;
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
  pretend: boolean;
  signs: string[];
  temperature_celsius: (number | null)[];
  utilisation: (number | null)[];
}

export interface HTTPValidationError {
  detail: ValidationError[];
}

export interface HangView {
  act: string;
  at: number;
  frame: string;
  node: string | null;
  phase: string;
  places: string[];
  rank: number | null;
  stalled_seconds: number;
  step: number;
  text: string;
}

export interface HeadDown {
  jobs: "leave" | "stop";
}

export interface HeadView {
  pid: number;
  started_at: number;
  url: string;
  version: string;
}

export interface IdentityLink {
  issuer: string | null;
  pending: string | null;
  subject: string | null;
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
  attempts: AttemptView[];
  begins_at: number | null;
  bottleneck: BottleneckView | null;
  checkpoints: CheckpointView[];
  ended_at: number | null;
  exit_code: number | null;
  forms: Form[];
  held_gpus: number | null;
  id: string;
  image: string | null;
  infra_retries: number;
  max_duration_seconds: number | null;
  name: string;
  next: string;
  nodes: string[];
  origin: string;
  owner: string;
  per: string;
  place: PlaceView;
  preemptible: boolean;
  pretend: boolean;
  priority: number;
  progress: ProgressView | null;
  queue: string;
  ran_seconds: number | null;
  reason: string;
  reason_code: string;
  receipts: ReceiptView[];
  run: string | null;
  running_since: number | null;
  service: string;
  shape: ShapeView;
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

export interface JobResume {
  step: number | null;
}

export interface JobSignal {
  signal: string;
  to: "ranks" | "batch" | "all" | null;
}

export type JobState = "HELD" | "QUEUED" | "STARTING" | "RUNNING" | "STOPPING" | "RECOVERING" | "SUSPENDED" | "DONE" | "FAILED" | "CANCELLED";

export interface JobSubmit {
  held: boolean;
  key: string;
  specs: Record<string, unknown>[];
}

export interface JobTimeView {
  ettr: number | null;
  failures: number;
  intervals: TimeIntervalView[];
  mttf_seconds: number | null;
  mttr_seconds: number | null;
  parts: TimePartView[];
  reports_steps: boolean;
}

export interface JobView {
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
  progress: ProgressView | null;
  queue: string;
  ran_seconds: number | null;
  reason: string;
  reason_code: string;
  running_since: number | null;
  shape: ShapeView;
  since: number;
  started_at: number | null;
  state: string;
  submitted_at: number;
  user_retries: number;
}

export interface JobsChange {
  jobs: string[];
  to: "cancel" | "suspend" | "resume" | "requeue";
}

export interface JobsChanged {
  jobs: ChangedJob[];
  refused: ChangeRefused[];
}

export interface JobsView {
  jobs: JobView[];
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

export interface KeptRow {
  job: string;
  since: number;
  victims: string[];
}

export interface KeptSnapshot {
  sha256: string;
  size_bytes: number;
}

export interface KeyRotated {
  earlier_until: number;
  key: string;
  sealed: number;
  unreadable: number;
}

export interface LentReportView {
  currency: string;
  services: LentView[];
}

export interface LentToView {
  earned: number | null;
  gpu_hours: number;
  gpu_type: string;
  lost_gpu_hours: number;
  queue: string;
  take_backs: number;
  user: string;
}

export interface LentView {
  asleep_gpu_hours: number;
  back_within_seconds: number | null;
  borrowers: LentToView[];
  earned: number;
  falling_asleep: number;
  is_stopped: boolean;
  lent_gpu_hours: number;
  lost_gpu_hours: number;
  queue: string;
  service: string;
  sleeping: number;
  take_back_seconds: number[];
  take_backs: number;
  take_backs_in_time: number;
  wake_seconds: number | null;
  wakes: number;
}

export interface LinkMade {
  expires_at: number;
  url: string;
}

export interface LogMatch {
  line: string;
  place: number;
  rank: number;
}

export interface LogMatches {
  attempt: number;
  matches: LogMatch[];
  next: string;
  searched_bytes: number;
}

export interface LogRange {
  attempt: number;
  begin: number;
  data: string;
  end: number;
  newest: number;
  oldest: number;
  rank: number;
  times: (number | null)[];
}

export interface ModelAsked {
  nodes: string[];
  request: string;
}

export interface ModelNodeView {
  most_bytes: number;
  node: string;
  used_bytes: number;
}

export interface ModelOnNode {
  done_bytes: number;
  node: string;
  pinned: boolean;
  size_bytes: number;
  state: string;
  text: string;
  used: boolean;
  used_at: number | null;
}

export interface ModelPull {
  all_nodes: boolean;
  env: Record<string, string>;
  nodes: string[];
  pinned: boolean | null;
  secrets: string[];
  source: string;
}

export interface ModelRemove {
  name: string;
  nodes: string[];
}

export interface ModelResult {
  node: string;
  request: string;
  source: string;
  trouble: string;
}

export interface ModelView {
  name: string;
  nodes: ModelOnNode[];
  sources: string[];
}

export interface ModelsView {
  models: ModelView[];
  nodes: ModelNodeView[];
  results: ModelResult[];
}

export interface NodeConditionView {
  code: number | null;
  count: number;
  device: string;
  excused: boolean;
  gpu: number | null;
  kind: string;
  last: number;
  mended_at: number | null;
  remedy: string;
  restriction: string;
  since: number;
  text: string;
  to_mend: string;
  uuid: string;
}

export interface NodeDetail {
  address: string;
  boot: string;
  checked_at: number | null;
  checks: CheckResult[];
  checkups: CheckWaiting[];
  closed: string;
  conditions: NodeConditionView[];
  containment: string;
  cordoned: boolean;
  cordoned_by: string;
  cpus: number;
  devices: NodeGpu[];
  draining: boolean;
  gpu_shares: boolean;
  gpus: NodeGpus;
  has_heartbeat: boolean;
  health: string;
  held_whole_by: string | null;
  id: string;
  jobs: string[];
  labels: Record<string, string>;
  liveness: string;
  lost_jobs: string[];
  memory_bytes: number;
  private_root: boolean;
  refused_users: Record<string, string>;
  sample: NodeSample | null;
  shared: string[];
  shared_account: string;
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
  pretend: boolean;
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

export interface NodeOutputs {
  bytes: number;
  count: number;
  files: OutputFileView[];
  is_kept: boolean;
  is_whole: boolean;
  node: string;
  ranks: number[];
  trouble: string;
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

export interface NodeTroubleView {
  node: string;
  trouble: string;
}

export interface NodeView {
  address: string;
  closed: string;
  cordoned: boolean;
  cordoned_by: string;
  cpus: number;
  draining: boolean;
  gpus: NodeGpus;
  has_heartbeat: boolean;
  health: string;
  held_whole_by: string | null;
  id: string;
  jobs: string[];
  labels: Record<string, string>;
  liveness: string;
  lost_jobs: string[];
  memory_bytes: number;
  since: number;
  suspect: boolean;
  taken_cpus: number;
  taken_memory_bytes: number;
  why: string;
}

export interface Nodes {
  nodes: NodeView[];
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

export interface OutputFileView {
  bytes: number;
  modified_at: number;
  path: string;
}

export interface Outputs {
  attempt: number;
  job: string;
  kept_until: number | null;
  name: string;
  nodes: NodeOutputs[];
}

export interface PendingLogInView {
  at: number;
  id: string;
  issuer: string;
  name: string;
  subject: string;
}

export interface PendingLogInsView {
  pending: PendingLogInView[];
}

export interface PlaceView {
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
  forecast: StartForecastView | null;
  forms: Form[];
  image: string | null;
  kind: string;
  max_duration_seconds: number | null;
  name: string;
  origin: string;
  place: PlaceView | null;
  preemptible: boolean;
  priority: number;
  python: string;
  queue: string;
  ranks: number;
  reason: string;
  seats: SeatView[];
  shape: ShapeView;
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

export interface ProcessStacksView {
  command: string;
  has_global_rank: boolean;
  local_rank: number | null;
  node: string;
  pid: number;
  rank: number | null;
  role: string;
  state: string;
  threads: ThreadStackView[];
  trouble: string;
}

export interface ProgressView {
  at: number;
  compute_seconds: number;
  data_seconds: number;
  first_step: number;
  left_seconds: number | null;
  loss: number | null;
  memory_step: number | null;
  nan_since: number | null;
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
  currency: string;
  half_life_seconds: number;
  min_runtime_seconds: number;
  pod_locality_delay_seconds: number;
  queues: QueueRow[];
  rack_locality_delay_seconds: number;
  relocation: RelocationRow | null;
}

export interface QueuesBody {
  document: Record<string, unknown>;
}

export interface QuotaRow {
  limit: number | null;
  name: string;
  set_by: "user" | "cluster" | "default";
  text: string;
  unit: "count" | "bytes";
  used: number | null;
}

export interface RateRow {
  a_second: number;
  limit: number;
  name: "requests" | "plan_seconds";
  text: string;
  used: number;
}

export interface RayInvitation {
  address: string;
  folder: string;
  token: string;
}

export interface ReceiptView {
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

export interface ReplicaView {
  attempt: number;
  draining_at: number | null;
  job: string;
  lent_to: string[];
  name: string;
  nodes: string[];
  number: number;
  probe_text: string;
  ready_at: number | null;
  reason: string;
  revision: number;
  role: string;
  sleep: string;
  state: string;
  under_way: number | null;
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

export interface ReportView {
  advice: GoodputAdviceView[];
  by: "job" | "user" | "queue" | "gpu-type";
  columns: ReportColumn[];
  days: ReportDay[];
  first: string;
  kind: "usage" | "waste" | "cost" | "goodput";
  last: string;
  pretend: boolean;
  rest: number;
  rows: ReportRow[];
  time: JobTimeView | null;
  total: (number | null)[];
}

export interface RequestCounts {
  completed: number;
  failed: number;
  total: number;
}

export interface RevisionView {
  at: number;
  by: string;
  number: number;
}

export interface RoleView {
  ready: number;
  reason: string;
  replicas: string;
  role: string;
  wanted: number;
}

export interface RollBackBody {
  revision: number | null;
}

export interface SeatView {
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
  for_everybody: boolean;
  name: string;
}

export interface SecretValue {
  for_everybody: boolean | null;
  value: string;
}

export interface Secrets {
  secrets: Secret[];
}

export interface SeriesView {
  fields: Record<string, (number | null)[]>;
  key: string;
  pretend: boolean;
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

export interface ServiceRatesView {
  cached_share: number | null;
  failed_per_second: number;
  itl_p50_seconds: number | null;
  itl_p90_seconds: number | null;
  requests_per_second: number;
  tokens_per_second: number;
  ttft_p50_seconds: number | null;
  ttft_p90_seconds: number | null;
  under_way: number;
}

export interface ServiceRow {
  canary: number | null;
  condition: string;
  created_at: number;
  id: string;
  is_http: boolean;
  models: string[];
  name: string;
  owner: string;
  problem: string;
  queue: string;
  rates: ServiceRatesView;
  ready: number;
  reason: string;
  replicas: string;
  revision: number;
  roles: RoleView[];
  state: string;
  stopped_at: number | null;
  url: string;
  wanted: number;
}

export interface ServiceScaleBody {
  replicas: number | string;
  role: "" | "prefill" | "decode";
}

export interface ServiceView {
  canary: number | null;
  canary_passed: boolean;
  condition: string;
  created_at: number;
  currency: string;
  events: EventView[];
  failed_starts: number;
  id: string;
  is_http: boolean;
  last_end: string;
  million_token_cost: number | null;
  models: string[];
  name: string;
  owner: string;
  problem: string;
  queue: string;
  rates: ServiceRatesView;
  ready: number;
  reason: string;
  replica_list: ReplicaView[];
  replicas: string;
  retry_at: number | null;
  revision: number;
  revisions: RevisionView[];
  roles: RoleView[];
  scale_events: EventView[];
  spec: Record<string, unknown> | null;
  state: string;
  stopped_at: number | null;
  turned_back: number | null;
  turned_back_reason: string;
  url: string;
  wanted: number;
}

export interface ServicesApplied {
  services: AppliedView[];
  warnings: string[];
}

export interface ServicesBody {
  documents: Record<string, unknown>[];
}

export interface ServicesView {
  services: ServiceRow[];
  url: string;
}

export interface SessionOpened {
  cluster: string;
  engine: string;
  expires_at: number | null;
  operates: string[];
  page_secret: string;
  role: string;
  user: string;
  version: string;
}

export interface SessionView {
  cluster: string;
  engine: string;
  expires_at: number | null;
  operates: string[];
  role: string;
  user: string;
  version: string;
}

export interface ShapeView {
  cpus_per_node: number;
  gpu_type: string | null;
  gpus_per_node: number;
  memory_bytes_per_node: number;
  nodes: number;
}

export interface SignOnView {
  provider: string | null;
}

export interface StackFrameView {
  file: string;
  function: string;
  line: number;
}

export interface Stacks {
  attempt: number;
  job: string;
  missing: NodeTroubleView[];
  name: string;
  processes: ProcessStacksView[];
}

export interface StartForecastView {
  ends: TimeSpanView;
  gives_up_at: number | null;
  held_percent: number | null;
  instead: ChangeSuggestionView[];
  is_too_late: boolean;
  known_percent: number;
  percent: number;
  runs: number;
  starts: TimeSpanView;
  text: string;
  told: number;
}

export interface Status {
  cluster: ClusterView;
  gateway: GatewayView | null;
  gpus: Gpus;
  head: HeadView;
  heads: OneHead[];
  jobs: Record<string, number>;
  nodes: NodeView[];
  separation: UserIsolationView[];
  warnings: WarningView[];
}

export interface TerminalBegun {
  code: string;
  id: string;
  poll_seconds: number;
  provider: string;
  seconds: number;
  secret: string;
}

export interface TerminalFetch {
  secret: string;
}

export interface TerminalToken {
  expires_at: number | null;
  id: string | null;
  role: string | null;
  token: string | null;
  user: string | null;
}

export interface ThreadStackView {
  frames: StackFrameView[];
  is_main: boolean;
  name: string;
}

export interface TimeIntervalView {
  attempt: number;
  part: string;
  since: number;
  until: number;
}

export interface TimePartView {
  part: string;
  seconds: number;
  share: number;
}

export interface TimeSpanView {
  high_seconds: number | null;
  low_seconds: number;
  text: string;
}

export interface TokenCreate {
  expires_seconds: number | null;
  never_expires: boolean;
  role: "caller" | "viewer" | "user" | "operator" | "admin" | null;
  tokens_per_month: number | null;
  user: string | null;
}

export interface TokenMade {
  expires_at: number | null;
  id: string;
  is_shortened: boolean;
  role: string;
  token: string;
  tokens_per_month: number | null;
  user: string;
}

export interface TokenRenew {
  sha256: string;
}

export interface TokenRenewed {
  earlier_until: number;
  expires_at: number | null;
}

export interface TokenView {
  created_at: number;
  expires_at: number | null;
  id: string;
  node: string | null;
  revoked_at: number | null;
  role: string;
  state: "valid" | "expired" | "revoked" | "used";
  tokens_per_month: number | null;
  tokens_this_month: number | null;
  used_at: number | null;
  user: string;
}

export interface TokensView {
  tokens: TokenView[];
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

export interface UserAdd {
  name: string;
  role: "viewer" | "user" | "operator" | "admin";
}

export interface UserDetail {
  created_at: number;
  disabled: boolean;
  issuer: string | null;
  log_bytes_dropped: number;
  name: string;
  quotas: QuotaRow[];
  rates: RateRow[];
  role: string;
  subject: string | null;
}

export interface UserIsolationView {
  account: string;
  means: string;
  nodes: string[];
  shared: string[];
  text: string;
}

export interface UserRemoved {
  name: string;
  secrets_kept: number;
  secrets_removed: number;
  tokens_revoked: number;
}

export interface UserRow {
  jobs: number | null;
  max_jobs: number | null;
  used: number;
  used_gpu_hours: number;
  user: string;
}

export interface UserSet {
  disabled: boolean | null;
  limits: Record<string, number | string | null> | null;
  role: "viewer" | "user" | "operator" | "admin" | null;
}

export interface UserView {
  created_at: number;
  disabled: boolean;
  issuer: string | null;
  name: string;
  role: string;
  subject: string | null;
}

export interface UsersView {
  users: UserView[];
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

export interface WarningView {
  code: string;
  node: string | null;
  text: string;
}

export interface Why {
  assumed: string;
  code: string;
  ending: ExpectedEndView | null;
  failed: Failed | null;
  forecast: StartForecastView | null;
  hang: string;
  holders: string;
  id: string;
  lent: string;
  name: string;
  place: number | null;
  reason: string;
  receipts: ReceiptView[];
  slurm: string;
  state: string;
  suggestions: string[];
  waiting: number;
  whose: string;
}

export interface WrittenSpec {
  has_workdir: boolean;
  spec: Record<string, unknown>;
}

export const PLAN_FORMS: Record<string, PlanField[]> = {
  "cost": [
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of GPUs.",
      "names": []
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm",
      "says": "Type of GPU.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "years",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 3.0,
      "says": "Number of years.",
      "names": []
    },
    {
      "name": "utilisation",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.7,
      "says": "Share of all hours in which the GPUs are used, the same for owning and renting.",
      "names": []
    },
    {
      "name": "node_gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "GPUs of a node; the default depends on the type of GPU.",
      "names": []
    },
    {
      "name": "storage_tb",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Storage for the GPUs, in TB.",
      "names": []
    },
    {
      "name": "egress_tb_month",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.0,
      "says": "Data that leaves a cloud each month, in TB.",
      "names": []
    },
    {
      "name": "budget_usd",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Budget in USD. It replaces the number of GPUs, or is given in addition to it.",
      "names": []
    },
    {
      "name": "demand",
      "kind": "list",
      "required": false,
      "optional": false,
      "preset": [],
      "says": "Pairs of GPUs and the hours of a year in which they are used, for the best mix of owned and rented GPUs.",
      "names": []
    },
    {
      "name": "assume",
      "kind": "object",
      "required": false,
      "optional": false,
      "preset": null,
      "says": "Numbers that replace those of catalog/data/economics.csv, by name.",
      "names": []
    },
    {
      "name": "cloud",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Cloud to rent from; the default is the median of all clouds.",
      "names": [
        "aws",
        "aws-blocks",
        "azure",
        "coreweave",
        "gcp",
        "lambda",
        "nebius",
        "oci",
        "runpod",
        "spheron",
        "vast",
        "verda"
      ]
    },
    {
      "name": "region",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Region of the GPUs, for the price of electricity.",
      "names": [
        "world",
        "au",
        "at",
        "be",
        "br",
        "ca",
        "cn",
        "cz",
        "dk",
        "fr",
        "de",
        "fi",
        "ie",
        "in",
        "no",
        "se",
        "gb",
        "nl",
        "pl",
        "es",
        "it",
        "is",
        "ch",
        "jp",
        "kr",
        "sg",
        "tw",
        "my",
        "za",
        "us",
        "us-tx",
        "us-va",
        "us-oh",
        "us-ca",
        "us-or",
        "us-wa",
        "us-ia",
        "us-ny",
        "us-ga",
        "us-az",
        "us-il",
        "us-nv",
        "us-tn"
      ]
    }
  ],
  "model": [
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Name of the model, the file (or text) of its config.json, or layers=32,hidden=4096,...",
      "names": [
        "llama-1-7b",
        "llama-1-13b",
        "llama-1-30b",
        "llama-1-65b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "codellama-34b",
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3-70b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3.3-70b",
        "llama-4-scout",
        "llama-4-maverick",
        "qwen-2-0.5b",
        "qwen-2-1.5b",
        "qwen-2-7b",
        "qwen-2-72b",
        "qwen-2.5-0.5b",
        "qwen-2.5-1.5b",
        "qwen-2.5-7b",
        "qwen-2.5-72b",
        "qwen-2.5-3b",
        "qwen-2.5-14b",
        "qwen-2.5-32b",
        "qwen-3-0.6b",
        "qwen-3-1.7b",
        "qwen-3-4b",
        "qwen-3-8b",
        "qwen-3-14b",
        "qwen-3-32b",
        "qwen-3-30b-a3b",
        "qwen-3-235b-a22b",
        "qwen-3-coder-480b-a35b",
        "qwen-1.5-moe-a2.7b",
        "qwen-2-57b-a14b",
        "mistral-7b",
        "mistral-7b-v0.2",
        "mistral-7b-v0.3",
        "mistral-nemo-12b",
        "mistral-small-24b",
        "mistral-large-123b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "deepseek-v2-lite",
        "deepseek-v2",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt-2-small",
        "gpt-2-medium",
        "gpt-2-large",
        "gpt-2-xl",
        "gpt-3-125m",
        "gpt-3-350m",
        "gpt-3-760m",
        "gpt-3-1.3b",
        "gpt-3-2.7b",
        "gpt-3-6.7b",
        "gpt-3-13b",
        "gpt-3-175b",
        "mt-nlg-530b",
        "gpt-j-6b",
        "gpt-neox-20b",
        "pythia-1.4b",
        "pythia-2.8b",
        "pythia-6.9b",
        "pythia-12b",
        "opt-125m",
        "opt-1.3b",
        "opt-2.7b",
        "opt-6.7b",
        "opt-13b",
        "opt-30b",
        "opt-66b",
        "opt-175b",
        "bloom-560m",
        "bloom-1.7b",
        "bloom-7.1b",
        "bloom-176b",
        "mpt-125m",
        "mpt-350m",
        "mpt-760m",
        "mpt-1b",
        "mpt-3b",
        "mpt-7b",
        "mpt-13b",
        "mpt-30b",
        "mpt-70b",
        "falcon-7b",
        "falcon-40b",
        "falcon-180b",
        "gemma-2b",
        "gemma-7b",
        "gemma-2-2b",
        "gemma-2-9b",
        "gemma-2-27b",
        "gemma-3-1b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "phi-2",
        "phi-3-mini",
        "phi-3-medium",
        "phi-3.5-moe",
        "phi-4",
        "phi-4-mini",
        "grok-1",
        "nemotron-3-8b",
        "nemotron-4-15b",
        "nemotron-4-340b",
        "nemotron-mini-4b",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "yi-6b",
        "yi-34b",
        "command-r-35b",
        "command-r-plus-104b",
        "internlm-7b",
        "internlm-20b",
        "starcoder2-15b",
        "olmo-2-7b",
        "olmo-2-13b",
        "glm-4.5",
        "glm-4.5-air",
        "glm-130b"
      ]
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm",
      "says": "Type of GPU.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "context",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 8192,
      "says": "Length of a sequence, in tokens.",
      "names": []
    },
    {
      "name": "batch",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16,
      "says": "Number of sequences that are served at the same time.",
      "names": []
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Precision of served or frozen weights: fp8, int4, ...; the default is the published precision.",
      "names": [
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "fp4",
        "int4"
      ]
    },
    {
      "name": "kv_precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Precision of the keys and values in the cache while serving: fp8, ...; the default is 16 bits.",
      "names": [
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "fp4",
        "int4"
      ]
    },
    {
      "name": "gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Maximum number of GPUs.",
      "names": []
    },
    {
      "name": "rank",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16,
      "says": "Rank of the LoRA matrices.",
      "names": []
    }
  ],
  "cluster": [
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of GPUs; it is rounded up to whole servers.",
      "names": []
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Type of GPU.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "fabric",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Network between the nodes: ib-ndr, roce-400, ...",
      "names": [
        "ib-edr",
        "ib-hdr",
        "ib-ndr",
        "ib-xdr",
        "roce-100",
        "roce-200",
        "roce-400",
        "roce-800",
        "slingshot-11",
        "omni-path-100",
        "ethernet-10",
        "ethernet-25",
        "ethernet-100",
        "gaudi-2-out",
        "gaudi-3-out"
      ]
    },
    {
      "name": "switch",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Type of switch of the fabric; the default is the usual one.",
      "names": []
    },
    {
      "name": "oversubscription",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 1.0,
      "says": "Ports of a leaf switch to nodes, divided by its ports to spines: 1 is non-blocking, 2 halves the bisection bandwidth.",
      "names": []
    },
    {
      "name": "rail_only",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false,
      "says": "Build no spine switches: each leaf switch connects only the GPUs at the same position of all nodes (a rail).",
      "names": []
    },
    {
      "name": "rack_kw",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Maximum power of a rack, in kW.",
      "names": []
    },
    {
      "name": "load",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Average power of the machines, as a share of their maximum power.",
      "names": []
    },
    {
      "name": "pue",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "PUE: power of the whole site, divided by the power of the machines.",
      "names": []
    },
    {
      "name": "region",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Region that the electricity comes from: de, us, world, ...",
      "names": [
        "world",
        "au",
        "at",
        "be",
        "br",
        "ca",
        "cn",
        "cz",
        "dk",
        "fr",
        "de",
        "fi",
        "ie",
        "in",
        "no",
        "se",
        "gb",
        "nl",
        "pl",
        "es",
        "it",
        "is",
        "ch",
        "jp",
        "kr",
        "sg",
        "tw",
        "my",
        "za",
        "us",
        "us-tx",
        "us-va",
        "us-oh",
        "us-ca",
        "us-or",
        "us-wa",
        "us-ia",
        "us-ny",
        "us-ga",
        "us-az",
        "us-il",
        "us-nv",
        "us-tn"
      ]
    },
    {
      "name": "carbon",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Emissions of the electricity, in kg of CO2 per kWh; overrides the region.",
      "names": []
    },
    {
      "name": "kwh",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Price of the electricity, in USD per kWh; overrides the region.",
      "names": []
    },
    {
      "name": "parameters",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Number of parameters of the largest model to train; it determines the size of a checkpoint.",
      "names": []
    },
    {
      "name": "save_minutes",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 30.0,
      "says": "Minutes between checkpoints.",
      "names": []
    },
    {
      "name": "async_saves",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false,
      "says": "Write checkpoints while the GPUs continue.",
      "names": []
    },
    {
      "name": "data_mb_per_gpu_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Training data that each GPU reads, in MB/s.",
      "names": []
    },
    {
      "name": "read_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Read rate of the existing storage, in GB/s; the default is what is needed.",
      "names": []
    },
    {
      "name": "write_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Write rate of the existing storage, in GB/s; the default is what is needed.",
      "names": []
    },
    {
      "name": "idle",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.01,
      "says": "Maximum share of the time that GPUs may wait for storage.",
      "names": []
    }
  ],
  "reliability": [
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of GPUs of the run.",
      "names": []
    },
    {
      "name": "days",
      "kind": "number",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Days that the training would take without any failure.",
      "names": []
    },
    {
      "name": "model",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Model that is trained, as in plan model; it determines the size of a checkpoint.",
      "names": [
        "llama-1-7b",
        "llama-1-13b",
        "llama-1-30b",
        "llama-1-65b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "codellama-34b",
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3-70b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3.3-70b",
        "llama-4-scout",
        "llama-4-maverick",
        "qwen-2-0.5b",
        "qwen-2-1.5b",
        "qwen-2-7b",
        "qwen-2-72b",
        "qwen-2.5-0.5b",
        "qwen-2.5-1.5b",
        "qwen-2.5-7b",
        "qwen-2.5-72b",
        "qwen-2.5-3b",
        "qwen-2.5-14b",
        "qwen-2.5-32b",
        "qwen-3-0.6b",
        "qwen-3-1.7b",
        "qwen-3-4b",
        "qwen-3-8b",
        "qwen-3-14b",
        "qwen-3-32b",
        "qwen-3-30b-a3b",
        "qwen-3-235b-a22b",
        "qwen-3-coder-480b-a35b",
        "qwen-1.5-moe-a2.7b",
        "qwen-2-57b-a14b",
        "mistral-7b",
        "mistral-7b-v0.2",
        "mistral-7b-v0.3",
        "mistral-nemo-12b",
        "mistral-small-24b",
        "mistral-large-123b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "deepseek-v2-lite",
        "deepseek-v2",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt-2-small",
        "gpt-2-medium",
        "gpt-2-large",
        "gpt-2-xl",
        "gpt-3-125m",
        "gpt-3-350m",
        "gpt-3-760m",
        "gpt-3-1.3b",
        "gpt-3-2.7b",
        "gpt-3-6.7b",
        "gpt-3-13b",
        "gpt-3-175b",
        "mt-nlg-530b",
        "gpt-j-6b",
        "gpt-neox-20b",
        "pythia-1.4b",
        "pythia-2.8b",
        "pythia-6.9b",
        "pythia-12b",
        "opt-125m",
        "opt-1.3b",
        "opt-2.7b",
        "opt-6.7b",
        "opt-13b",
        "opt-30b",
        "opt-66b",
        "opt-175b",
        "bloom-560m",
        "bloom-1.7b",
        "bloom-7.1b",
        "bloom-176b",
        "mpt-125m",
        "mpt-350m",
        "mpt-760m",
        "mpt-1b",
        "mpt-3b",
        "mpt-7b",
        "mpt-13b",
        "mpt-30b",
        "mpt-70b",
        "falcon-7b",
        "falcon-40b",
        "falcon-180b",
        "gemma-2b",
        "gemma-7b",
        "gemma-2-2b",
        "gemma-2-9b",
        "gemma-2-27b",
        "gemma-3-1b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "phi-2",
        "phi-3-mini",
        "phi-3-medium",
        "phi-3.5-moe",
        "phi-4",
        "phi-4-mini",
        "grok-1",
        "nemotron-3-8b",
        "nemotron-4-15b",
        "nemotron-4-340b",
        "nemotron-mini-4b",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "yi-6b",
        "yi-34b",
        "command-r-35b",
        "command-r-plus-104b",
        "internlm-7b",
        "internlm-20b",
        "starcoder2-15b",
        "olmo-2-7b",
        "olmo-2-13b",
        "glm-4.5",
        "glm-4.5-air",
        "glm-130b"
      ]
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm",
      "says": "Type of GPU.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "parameters",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Number of parameters, instead of a model, for example 70B.",
      "names": []
    },
    {
      "name": "node_gpus",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "GPUs of a node; a node fails as a whole.",
      "names": []
    },
    {
      "name": "rate",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Measured failures that end a run, per 1,000 node-days of your nodes.",
      "names": []
    },
    {
      "name": "counted",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Number of failures from which the rate was measured; it determines the error band.",
      "names": []
    },
    {
      "name": "stall_seconds",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Seconds that training stops for one checkpoint.",
      "names": []
    },
    {
      "name": "async_saves",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false,
      "says": "Write checkpoints in the background.",
      "names": []
    },
    {
      "name": "write_gb_per_s",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Write rate of the storage for all nodes together, in GB/s.",
      "names": []
    },
    {
      "name": "restart_minutes",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Minutes from a failure until training continues.",
      "names": []
    },
    {
      "name": "interval_minutes",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Minutes between checkpoints, to compare with the best interval.",
      "names": []
    },
    {
      "name": "repair_hours",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Hours until a failed node is repaired.",
      "names": []
    },
    {
      "name": "crews",
      "kind": "integer",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Number of nodes that can be repaired at the same time.",
      "names": []
    },
    {
      "name": "availability",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 0.99,
      "says": "Target: the share of the time in which enough nodes work for the run. It determines the number of spare nodes.",
      "names": []
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Price of a GPU-hour in USD, for the cost of failures.",
      "names": []
    }
  ],
  "serve": [
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Name of the model, the file (or text) of its config.json, or layers=32,hidden=4096,...",
      "names": [
        "llama-1-7b",
        "llama-1-13b",
        "llama-1-30b",
        "llama-1-65b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "codellama-34b",
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3-70b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3.3-70b",
        "llama-4-scout",
        "llama-4-maverick",
        "qwen-2-0.5b",
        "qwen-2-1.5b",
        "qwen-2-7b",
        "qwen-2-72b",
        "qwen-2.5-0.5b",
        "qwen-2.5-1.5b",
        "qwen-2.5-7b",
        "qwen-2.5-72b",
        "qwen-2.5-3b",
        "qwen-2.5-14b",
        "qwen-2.5-32b",
        "qwen-3-0.6b",
        "qwen-3-1.7b",
        "qwen-3-4b",
        "qwen-3-8b",
        "qwen-3-14b",
        "qwen-3-32b",
        "qwen-3-30b-a3b",
        "qwen-3-235b-a22b",
        "qwen-3-coder-480b-a35b",
        "qwen-1.5-moe-a2.7b",
        "qwen-2-57b-a14b",
        "mistral-7b",
        "mistral-7b-v0.2",
        "mistral-7b-v0.3",
        "mistral-nemo-12b",
        "mistral-small-24b",
        "mistral-large-123b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "deepseek-v2-lite",
        "deepseek-v2",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt-2-small",
        "gpt-2-medium",
        "gpt-2-large",
        "gpt-2-xl",
        "gpt-3-125m",
        "gpt-3-350m",
        "gpt-3-760m",
        "gpt-3-1.3b",
        "gpt-3-2.7b",
        "gpt-3-6.7b",
        "gpt-3-13b",
        "gpt-3-175b",
        "mt-nlg-530b",
        "gpt-j-6b",
        "gpt-neox-20b",
        "pythia-1.4b",
        "pythia-2.8b",
        "pythia-6.9b",
        "pythia-12b",
        "opt-125m",
        "opt-1.3b",
        "opt-2.7b",
        "opt-6.7b",
        "opt-13b",
        "opt-30b",
        "opt-66b",
        "opt-175b",
        "bloom-560m",
        "bloom-1.7b",
        "bloom-7.1b",
        "bloom-176b",
        "mpt-125m",
        "mpt-350m",
        "mpt-760m",
        "mpt-1b",
        "mpt-3b",
        "mpt-7b",
        "mpt-13b",
        "mpt-30b",
        "mpt-70b",
        "falcon-7b",
        "falcon-40b",
        "falcon-180b",
        "gemma-2b",
        "gemma-7b",
        "gemma-2-2b",
        "gemma-2-9b",
        "gemma-2-27b",
        "gemma-3-1b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "phi-2",
        "phi-3-mini",
        "phi-3-medium",
        "phi-3.5-moe",
        "phi-4",
        "phi-4-mini",
        "grok-1",
        "nemotron-3-8b",
        "nemotron-4-15b",
        "nemotron-4-340b",
        "nemotron-mini-4b",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "yi-6b",
        "yi-34b",
        "command-r-35b",
        "command-r-plus-104b",
        "internlm-7b",
        "internlm-20b",
        "starcoder2-15b",
        "olmo-2-7b",
        "olmo-2-13b",
        "glm-4.5",
        "glm-4.5-air",
        "glm-130b"
      ]
    },
    {
      "name": "qps",
      "kind": "number",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Requests per second, of all users together.",
      "names": []
    },
    {
      "name": "input",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of tokens of a prompt.",
      "names": []
    },
    {
      "name": "output",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of tokens of an answer.",
      "names": []
    },
    {
      "name": "ttft_p90",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Target for the time to the first token: 90 % of the requests have it within this time, in milliseconds.",
      "names": []
    },
    {
      "name": "itl_p90",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Target for the time between two tokens: it is at most this in 90 % of cases, in milliseconds.",
      "names": []
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Type of GPU; the default is all types that have a price.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Precision of the weights: fp8, int4, ...; the default is that of the published weights.",
      "names": [
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "fp4",
        "int4"
      ]
    },
    {
      "name": "kv_precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Precision of the cached keys and values: fp8, ...; the default is 16 bits.",
      "names": [
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "fp4",
        "int4"
      ]
    },
    {
      "name": "engine",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "vllm",
      "says": "Inference engine: vllm, tensorrt-llm, ...",
      "names": [
        "fastertransformer",
        "tensorrt-llm-0",
        "tensorrt-llm",
        "vllm",
        "pytorch",
        "megatron-lm",
        "llama.cpp",
        "mlc-llm",
        "exllama"
      ]
    },
    {
      "name": "shared",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0,
      "says": "Number of first tokens that all prompts share, and that stay cached.",
      "names": []
    },
    {
      "name": "price",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "on_demand",
      "says": "Kind of price: on_demand, reserved_1y, reserved_3y or spot.",
      "names": [
        "on_demand",
        "reserved_1y",
        "reserved_3y",
        "spot"
      ]
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Price of a GPU-hour of the given type, in USD, instead of the catalog's price.",
      "names": []
    }
  ],
  "train": [
    {
      "name": "model",
      "kind": "string",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Name of the model, the file (or text) of its config.json, or layers=32,hidden=4096,...",
      "names": [
        "llama-1-7b",
        "llama-1-13b",
        "llama-1-30b",
        "llama-1-65b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "codellama-34b",
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3-70b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3.3-70b",
        "llama-4-scout",
        "llama-4-maverick",
        "qwen-2-0.5b",
        "qwen-2-1.5b",
        "qwen-2-7b",
        "qwen-2-72b",
        "qwen-2.5-0.5b",
        "qwen-2.5-1.5b",
        "qwen-2.5-7b",
        "qwen-2.5-72b",
        "qwen-2.5-3b",
        "qwen-2.5-14b",
        "qwen-2.5-32b",
        "qwen-3-0.6b",
        "qwen-3-1.7b",
        "qwen-3-4b",
        "qwen-3-8b",
        "qwen-3-14b",
        "qwen-3-32b",
        "qwen-3-30b-a3b",
        "qwen-3-235b-a22b",
        "qwen-3-coder-480b-a35b",
        "qwen-1.5-moe-a2.7b",
        "qwen-2-57b-a14b",
        "mistral-7b",
        "mistral-7b-v0.2",
        "mistral-7b-v0.3",
        "mistral-nemo-12b",
        "mistral-small-24b",
        "mistral-large-123b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "deepseek-v2-lite",
        "deepseek-v2",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt-2-small",
        "gpt-2-medium",
        "gpt-2-large",
        "gpt-2-xl",
        "gpt-3-125m",
        "gpt-3-350m",
        "gpt-3-760m",
        "gpt-3-1.3b",
        "gpt-3-2.7b",
        "gpt-3-6.7b",
        "gpt-3-13b",
        "gpt-3-175b",
        "mt-nlg-530b",
        "gpt-j-6b",
        "gpt-neox-20b",
        "pythia-1.4b",
        "pythia-2.8b",
        "pythia-6.9b",
        "pythia-12b",
        "opt-125m",
        "opt-1.3b",
        "opt-2.7b",
        "opt-6.7b",
        "opt-13b",
        "opt-30b",
        "opt-66b",
        "opt-175b",
        "bloom-560m",
        "bloom-1.7b",
        "bloom-7.1b",
        "bloom-176b",
        "mpt-125m",
        "mpt-350m",
        "mpt-760m",
        "mpt-1b",
        "mpt-3b",
        "mpt-7b",
        "mpt-13b",
        "mpt-30b",
        "mpt-70b",
        "falcon-7b",
        "falcon-40b",
        "falcon-180b",
        "gemma-2b",
        "gemma-7b",
        "gemma-2-2b",
        "gemma-2-9b",
        "gemma-2-27b",
        "gemma-3-1b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "phi-2",
        "phi-3-mini",
        "phi-3-medium",
        "phi-3.5-moe",
        "phi-4",
        "phi-4-mini",
        "grok-1",
        "nemotron-3-8b",
        "nemotron-4-15b",
        "nemotron-4-340b",
        "nemotron-mini-4b",
        "gpt-oss-20b",
        "gpt-oss-120b",
        "yi-6b",
        "yi-34b",
        "command-r-35b",
        "command-r-plus-104b",
        "internlm-7b",
        "internlm-20b",
        "starcoder2-15b",
        "olmo-2-7b",
        "olmo-2-13b",
        "glm-4.5",
        "glm-4.5-air",
        "glm-130b"
      ]
    },
    {
      "name": "gpus",
      "kind": "integer",
      "required": true,
      "optional": false,
      "preset": null,
      "says": "Number of GPUs.",
      "names": []
    },
    {
      "name": "gpu",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "h100-sxm",
      "says": "Type of GPU.",
      "names": [
        "v100-sxm-16",
        "v100-sxm-32",
        "v100-sxm3-32",
        "v100-pcie-16",
        "v100-pcie-32",
        "t4",
        "a100-sxm-40",
        "a100-sxm-80",
        "a100-pcie-40",
        "a100-pcie-80",
        "a800-sxm-80",
        "a30",
        "a10",
        "a10g",
        "a40",
        "a6000",
        "rtx-3070",
        "rtx-3080",
        "rtx-3080-ti",
        "rtx-3090",
        "rtx-3090-ti",
        "l4",
        "l40",
        "l40s",
        "rtx-4070-ti",
        "rtx-4080",
        "rtx-4090",
        "rtx-4000-ada",
        "rtx-5000-ada",
        "rtx-6000-ada",
        "h100-sxm",
        "h100-sxm-96",
        "h100-pcie",
        "h100-nvl",
        "h800-sxm",
        "h20",
        "h200-sxm",
        "h200-nvl",
        "gh200-96",
        "gh200-144",
        "b200",
        "gb200",
        "b300",
        "gb300",
        "rtx-5090",
        "rtx-pro-6000",
        "rtx-pro-6000-workstation",
        "mi100",
        "mi210",
        "mi250",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi350x",
        "mi355x",
        "rx-7900-xtx",
        "gaudi-2",
        "gaudi-3",
        "arc-pro-b60",
        "trainium-2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "m1-7c",
        "m1-max-32c",
        "m2-ultra-76c",
        "m3-max-40c",
        "p100-sxm",
        "p100-pcie",
        "rtx-2080-ti",
        "titan-rtx",
        "rtx-8000",
        "a5000",
        "a4000",
        "rtx-3060",
        "rtx-3060-ti",
        "rtx-3070-ti",
        "rtx-4060-ti",
        "rtx-4070",
        "rtx-4070-ti-super",
        "rtx-4080-super",
        "rtx-5070",
        "rtx-5070-ti",
        "rtx-5080",
        "gb10",
        "l20",
        "a800-pcie-80",
        "mi250-gcd",
        "mi250x-gcd",
        "mi300a",
        "mi50",
        "max-1550",
        "trainium-1",
        "tpu-v2",
        "m1-max-24c",
        "m1-ultra-64c",
        "m2-max-38c",
        "m3-ultra-80c",
        "m4-max-40c"
      ]
    },
    {
      "name": "tokens",
      "kind": "number",
      "required": false,
      "optional": false,
      "preset": 1000000000000.0,
      "says": "Number of tokens of the whole training, for example 1e12 or 15T.",
      "names": []
    },
    {
      "name": "context",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 4096,
      "says": "Length of a sequence, in tokens.",
      "names": []
    },
    {
      "name": "batch",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0,
      "says": "Sequences per step; with 0 the usual number, which the report shows.",
      "names": []
    },
    {
      "name": "precision",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Precision of matrix products or, with LoRA, of the frozen weights: fp8, ...; the default is bf16, or fp16 on GPUs without bf16.",
      "names": [
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8",
        "int8",
        "fp4",
        "int4"
      ]
    },
    {
      "name": "lora",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false,
      "says": "Train LoRA adapters on a frozen model.",
      "names": []
    },
    {
      "name": "rank",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 16,
      "says": "Rank of the LoRA matrices.",
      "names": []
    },
    {
      "name": "library",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "megatron-core",
      "says": "Training library: megatron-core, pytorch, torchtitan, ...",
      "names": [
        "llm-foundry",
        "maxtext",
        "megatron-2021",
        "megatron-core",
        "megatron-deepspeed",
        "megatron-tests",
        "megatron-tests-lone",
        "pytorch",
        "torchtitan",
        "torchtune"
      ]
    },
    {
      "name": "fabric",
      "kind": "string",
      "required": false,
      "optional": false,
      "preset": "",
      "says": "Network between nodes: ib-ndr, efa, spectrum-x, ..., or its rate for one GPU: 280 Gb/s; the default depends on the GPU.",
      "names": [
        "ib-edr",
        "ib-hdr",
        "ib-ndr",
        "ib-xdr",
        "roce-100",
        "roce-200",
        "roce-400",
        "roce-800",
        "slingshot-11",
        "omni-path-100",
        "ethernet-10",
        "ethernet-25",
        "ethernet-100",
        "gaudi-2-out",
        "gaudi-3-out"
      ]
    },
    {
      "name": "tensor",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0,
      "says": "Size of tensor parallelism; with 0 the search chooses it.",
      "names": []
    },
    {
      "name": "pipeline",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0,
      "says": "Number of pipeline stages; with 0 the search chooses it.",
      "names": []
    },
    {
      "name": "context_parallel",
      "kind": "integer",
      "required": false,
      "optional": false,
      "preset": 0,
      "says": "Size of context parallelism; with 0 the search chooses it.",
      "names": []
    },
    {
      "name": "no_shard",
      "kind": "boolean",
      "required": false,
      "optional": false,
      "preset": false,
      "says": "Use neither ZeRO-3 nor FSDP.",
      "names": []
    },
    {
      "name": "usd_per_gpu_hour",
      "kind": "number",
      "required": false,
      "optional": true,
      "preset": null,
      "says": "Price of a GPU-hour, in USD; the default is the median of the catalog's prices.",
      "names": []
    }
  ]
};
