/** All jobs: filtered and paged by the head, and drawn only where one looks. */

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { FINAL, type Filter, useBusyOfJobs, useJobs, useQueues, useReport } from "../api/queries";
import { useWho } from "../api/rights";
import type { JobView } from "../api/types";
import {
  type Group,
  grouped,
  isGroup,
  nameOf,
  nextSort,
  type Row,
  sorted,
  states,
} from "../jobs/rows";
import { Selected } from "../jobs/Selected";
import { Empty, Head, Lasted, Segments, State, Wrong } from "../parts/basic";
import { costOf } from "../parts/cost";
import { clock, count, full, ownTime, percent, shape } from "../parts/say";

const STATES = ["RUNNING", "QUEUED", "HELD", "SUSPENDED", "DONE", "FAILED", "CANCELLED"];
const TYPING_MS = 250;
const NARROW = "(max-width: 720px)";

const DAY_SECONDS = 86_400;
const SORTED_ROWS = 10_000; // that are sorted here; the head sorts by the newest alone

export function Jobs() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const who = useWho();
  const named = search.owner || search.text || search.queue || search.state;
  const whose = search.whose ?? (who?.role === "user" && !named ? "mine" : "all");
  const filter = useMemo<Filter>(() => {
    const state = search.state && search.state !== "all" ? [search.state] : [];
    const lately = whose === "mine" && !search.state;
    const hour = Math.floor(Date.now() / 3_600_000) * 3600;
    return {
      text: search.text ?? "",
      owner: whose === "mine" ? (who?.user ?? "") : (search.owner ?? ""),
      queue: search.queue ?? "",
      state,
      all: lately || search.state === "all" || state.some((one) => FINAL.has(one)),
      ...(lately ? { since: hour - DAY_SECONDS } : {}),
    };
  }, [search, whose, who?.user]);
  const found = useJobs(filter, search.sort ? SORTED_ROWS : undefined);
  const jobs = useMemo(() => found.data?.pages.flatMap((page) => page.jobs) ?? [], [found.data]);
  const rows = useMemo<Row[]>(
    () =>
      search.sort ? sorted(jobs, search.sort, Date.now() / 1000) : grouped(jobs, search.text ?? ""),
    [jobs, search.sort, search.text],
  );
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const tick = useCallback(
    (name: string) =>
      setTicked((before) => {
        const after = new Set(before);
        if (!after.delete(name)) after.add(name);
        return after;
      }),
    [],
  );
  const change = (other: Partial<typeof search>) =>
    void navigate({ search: { ...search, ...other }, replace: true });
  return (
    <>
      <Head title="Jobs">
        <div className="actions">
          <Link to="/submit" className="button">
            Submit a job
          </Link>
        </div>
      </Head>
      <div className="tools">
        <Find text={search.text ?? ""} onFind={(text) => change({ text: text || undefined })} />
        <Segments
          says="Whose jobs"
          of={["mine", "all"] as const}
          is={whose}
          onPick={(one) => change({ whose: one, owner: undefined })}
        />
        <States
          state={search.state}
          first={whose === "mine" ? "Unfinished, or ended within 24 h" : "Unfinished"}
          onState={(state) => change({ state })}
        />
        {whose === "all" && (
          <Owner
            owner={search.owner ?? ""}
            onOwner={(owner) => change({ owner: owner || undefined })}
          />
        )}
        <QueueChoice
          queue={search.queue ?? ""}
          onQueue={(queue) => change({ queue: queue || undefined })}
        />
        <span className="soft" role="status">
          {found.isPending ? "" : `${count(jobs.length)}${found.hasNextPage ? " and more" : ""}`}
        </span>
      </div>
      <Selected
        names={ticked}
        rows={rows.filter((row) => ticked.has(nameOf(row)))}
        onClear={() => setTicked(new Set())}
      />
      <Wrong error={found.error} />
      <section className="card" aria-label="Jobs">
        <Heads sort={search.sort} onSort={(sort) => change({ sort })} />
        {!found.isPending && !jobs.length && <Empty>No job matches these filters.</Empty>}
        <Rows
          rows={rows}
          ticked={ticked}
          onTick={tick}
          more={found.hasNextPage && !found.isFetchingNextPage && !search.sort}
          onMore={() => void found.fetchNextPage()}
        />
      </section>
    </>
  );
}

const HEADS: [string, string, string?][] = [
  ["state", "State"],
  ["name", "Name"],
  ["owner", "Owner"],
  ["queue", "Queue"],
  ["gpus", "Asks for"],
  ["submitted", "Submitted", "right"],
  ["ran", "Run or wait", "right"],
  ["ended", "Ended", "right"],
  ["", "GPU busy", "right"],
  ["", "Cost", "right"],
  ["", "Nodes or reason"],
];

function Heads({
  sort,
  onSort,
}: {
  sort: string | undefined;
  onSort: (sort: string | undefined) => void;
}) {
  return (
    <div className="job-line jobs-head" role="group" aria-label="Sort by">
      <span />
      <div className="job-cells">
        {HEADS.map(([key, name, side]) => {
          const own = sort?.replace(/^-/, "") === key;
          if (!key)
            return (
              <span key={name} className={side}>
                {name}
              </span>
            );
          return (
            <button
              key={name}
              type="button"
              className={`sort ${side ?? ""}`}
              aria-pressed={own}
              onClick={() => onSort(nextSort(sort, key))}
            >
              {name}
              {own && <span aria-hidden="true">{sort?.startsWith("-") ? " ↑" : " ↓"}</span>}
            </button>
          );
        })}
      </div>
    </div>
  );
}

interface RowsProps {
  rows: readonly Row[];
  ticked: ReadonlySet<string>;
  onTick: (name: string) => void;
  more: boolean;
  onMore: () => void;
}

function Rows({ rows: all, ticked, onTick, more, onMore }: RowsProps) {
  const list = useRef<HTMLDivElement>(null);
  const busy = useBusyOfJobs().data;
  const costs = useReport("cost", "job", 30, 1000).data;
  const tall = useMemo(() => (window.matchMedia(NARROW).matches ? 76 : 36), []);
  const rows = useWindowVirtualizer({
    count: all.length,
    estimateSize: () => tall,
    overscan: 12,
    scrollMargin: list.current?.offsetTop ?? 0,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? -1;
  useEffect(() => {
    if (more && last >= all.length - 20) onMore();
  }, [more, last, all.length, onMore]);
  return (
    <div ref={list} className="rows" style={{ height: rows.getTotalSize() }} role="list">
      {shown.map((item) => {
        const row = all[item.index];
        if (!row) return null;
        const name = nameOf(row);
        return (
          <div
            key={name}
            role="listitem"
            className="job-line"
            style={{ transform: `translateY(${item.start - rows.options.scrollMargin}px)` }}
          >
            <label className="tick">
              <span className="hidden">Select {name}</span>
              <input type="checkbox" checked={ticked.has(name)} onChange={() => onTick(name)} />
            </label>
            {isGroup(row) ? (
              <ArrayRow group={row} />
            ) : (
              <JobRow
                job={row}
                busy={busy?.get(row.id)}
                cost={costs ? costOf(costs, row.id) : ""}
              />
            )}
          </div>
        );
      })}
    </div>
  );
}

function ArrayRow({ group }: { group: Group }) {
  const [first] = group.jobs;
  if (!first) return null;
  return (
    <Link to="/jobs/$job" params={{ job: group.array }} className="job-row job-cells">
      <State is={group.jobs.find((job) => !FINAL.has(job.state))?.state ?? first.state} />
      <span className="cut">
        <b>{group.name}</b>{" "}
        <span className="soft">
          {group.array} · {count(group.jobs.length)} jobs
        </span>
      </span>
      <span className="cut soft">{first.owner}</span>
      <span className="cut soft">{first.queue}</span>
      <span className="cut">{shape(first.shape)}, each</span>
      <span className="right soft">
        <Short at={first.submitted_at} />
      </span>
      <span />
      <span />
      <span />
      <span />
      <span className="cut soft">{states(group)}</span>
    </Link>
  );
}

function JobRow({ job, busy, cost }: { job: JobView; busy: number | undefined; cost: string }) {
  const until = job.progress?.until;
  const progress =
    job.progress &&
    (until ? percent(job.progress.step / until) : `step ${count(job.progress.step)}`);
  const running = job.state === "RUNNING" && busy !== undefined;
  return (
    <Link to="/jobs/$job" params={{ job: job.id }} className="job-row job-cells">
      <State is={job.state} />
      <span className="cut">
        <b>{job.name}</b> <span className="soft">{job.id}</span>
      </span>
      <span className="cut soft">{job.owner}</span>
      <span className="cut soft">{job.queue}</span>
      <span className="cut">{shape(job.shape)}</span>
      <span className="right soft">
        <Short at={job.submitted_at} />
      </span>
      <span className="right soft">
        <Lasted
          from={job.started_at ?? job.submitted_at}
          {...(FINAL.has(job.state) ? { to: job.ended_at } : {})}
        />
      </span>
      <span className="right soft">
        {job.ended_at === null ? "–" : <Short at={job.ended_at} />}
      </span>
      <span className="right">{running ? percent(Math.round(busy * 100) / 100) : "–"}</span>
      <span className="right cut" title={cost}>
        {cost ? cost.replace(" at list prices", "*") : "–"}
      </span>
      <span className="cut soft">
        {[progress, ownTime(job.reason) || job.nodes.join(", ")].filter(Boolean).join(" · ")}
      </span>
    </Link>
  );
}

/** A time of another day without its year: the year is in its title. */
function Short({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={full(at)}>
      {clock(at).replace(/^\d{4}-/, "")}
    </time>
  );
}

/** Asks once nobody types any more. */
function Find({ text, onFind }: { text: string; onFind: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  const find = useRef(onFind);
  find.current = onFind;
  useEffect(() => {
    if (typed === text) return;
    const timer = window.setTimeout(() => find.current(typed), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [typed, text]);
  return (
    <input
      type="search"
      className="find"
      placeholder="Name or id"
      aria-label="Find jobs by name or id"
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
    />
  );
}

function Owner({ owner, onOwner }: { owner: string; onOwner: (owner: string) => void }) {
  return (
    <input
      placeholder="Owner"
      aria-label="Owner"
      defaultValue={owner}
      key={owner}
      size={10}
      onBlur={(event) => event.target.value !== owner && onOwner(event.target.value.trim())}
      onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()}
    />
  );
}

function QueueChoice({ queue, onQueue }: { queue: string; onQueue: (queue: string) => void }) {
  const { data } = useQueues();
  return (
    <select aria-label="Queue" value={queue} onChange={(event) => onQueue(event.target.value)}>
      <option value="">All queues</option>
      {data?.queues.map((one) => (
        <option key={one.name}>{one.name}</option>
      ))}
    </select>
  );
}

interface StatesProps {
  state: string | undefined;
  first: string;
  onState: (state: string | undefined) => void;
}

function States({ state, first, onState }: StatesProps) {
  return (
    <select
      aria-label="State"
      value={state ?? ""}
      onChange={(event) => onState(event.target.value || undefined)}
    >
      <option value="">{first}</option>
      <option value="all">All, including ended jobs</option>
      {STATES.map((one) => (
        <option key={one} value={one}>
          {one.charAt(0) + one.slice(1).toLowerCase()}
        </option>
      ))}
    </select>
  );
}
