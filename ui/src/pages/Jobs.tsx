/** All jobs: filtered and paged by the head, and drawn only where one looks. */

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { FINAL, type Filter, useJobs, useQueues } from "../api/queries";
import type { Job } from "../api/types";
import { Empty, Head, Lasted, State, Wrong } from "../parts/basic";
import { count, percent, shape } from "../parts/say";

const STATES = ["RUNNING", "QUEUED", "HELD", "SUSPENDED", "DONE", "FAILED", "CANCELLED"];
const TYPING_MS = 250;
const NARROW = "(max-width: 720px)";

export function Jobs() {
  const search = useSearch({ from: "/jobs" });
  const navigate = useNavigate({ from: "/jobs" });
  const filter = useMemo<Filter>(() => {
    const state = search.state && search.state !== "all" ? [search.state] : [];
    return {
      text: search.text ?? "",
      owner: search.owner ?? "",
      queue: search.queue ?? "",
      state,
      all: search.state === "all" || state.some((one) => FINAL.has(one)),
    };
  }, [search]);
  const found = useJobs(filter);
  const jobs = useMemo(() => found.data?.pages.flatMap((page) => page.jobs) ?? [], [found.data]);
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
        <States state={search.state} onState={(state) => change({ state })} />
        <Owner
          owner={search.owner ?? ""}
          onOwner={(owner) => change({ owner: owner || undefined })}
        />
        <QueueChoice
          queue={search.queue ?? ""}
          onQueue={(queue) => change({ queue: queue || undefined })}
        />
        <span className="soft" role="status">
          {found.isPending ? "" : `${count(jobs.length)}${found.hasNextPage ? " and more" : ""}`}
        </span>
      </div>
      <Wrong error={found.error} />
      <section className="card" aria-label="Jobs">
        <div className="jobs-head" aria-hidden="true">
          <span>State</span>
          <span>Name</span>
          <span>Owner</span>
          <span>Queue</span>
          <span>Shape</span>
          <span className="right">For</span>
          <span>Now</span>
        </div>
        {!found.isPending && !jobs.length && <Empty>No job is like that.</Empty>}
        <Rows
          jobs={jobs}
          more={found.hasNextPage && !found.isFetchingNextPage}
          onMore={() => void found.fetchNextPage()}
        />
      </section>
    </>
  );
}

interface RowsProps {
  jobs: readonly Job[];
  more: boolean;
  onMore: () => void;
}

function Rows({ jobs, more, onMore }: RowsProps) {
  const list = useRef<HTMLDivElement>(null);
  const tall = useMemo(() => (window.matchMedia(NARROW).matches ? 58 : 36), []);
  const rows = useWindowVirtualizer({
    count: jobs.length,
    estimateSize: () => tall,
    overscan: 12,
    scrollMargin: list.current?.offsetTop ?? 0,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? -1;
  useEffect(() => {
    if (more && last >= jobs.length - 20) onMore();
  }, [more, last, jobs.length, onMore]);
  return (
    <div ref={list} className="rows" style={{ height: rows.getTotalSize() }} role="list">
      {shown.map((item) => {
        const job = jobs[item.index];
        const top = item.start - rows.options.scrollMargin;
        return job ? <Row key={job.id} job={job} top={top} /> : null;
      })}
    </div>
  );
}

function Row({ job, top }: { job: Job; top: number }) {
  const over = FINAL.has(job.state);
  const until = job.progress?.until;
  const progress =
    job.progress &&
    (until ? percent(job.progress.step / until) : `step ${count(job.progress.step)}`);
  return (
    <div role="listitem">
      <Link
        to="/jobs/$job"
        params={{ job: job.id }}
        className="job-row"
        style={{ transform: `translateY(${top}px)` }}
      >
        <State is={job.state} />
        <span className="cut">
          <b>{job.name}</b> <span className="soft">{job.id}</span>
        </span>
        <span className="cut soft">{job.owner}</span>
        <span className="cut soft">{job.queue}</span>
        <span className="cut">{shape(job.shape)}</span>
        <span className="right soft">
          {over ? (
            <Lasted from={job.started_at ?? job.submitted_at} to={job.ended_at} />
          ) : (
            <Lasted from={job.started_at ?? job.submitted_at} />
          )}
        </span>
        <span className="cut soft">
          {[progress, job.reason || job.nodes.join(", ")].filter(Boolean).join(" · ")}
        </span>
      </Link>
    </div>
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
      <option value="">Every queue</option>
      {data?.queues.map((one) => (
        <option key={one.name}>{one.name}</option>
      ))}
    </select>
  );
}

interface StatesProps {
  state: string | undefined;
  onState: (state: string | undefined) => void;
}

function States({ state, onState }: StatesProps) {
  return (
    <select
      aria-label="State"
      value={state ?? ""}
      onChange={(event) => onState(event.target.value || undefined)}
    >
      <option value="">Unfinished</option>
      <option value="all">All, also those that are over</option>
      {STATES.map((one) => (
        <option key={one} value={one}>
          {one.charAt(0) + one.slice(1).toLowerCase()}
        </option>
      ))}
    </select>
  );
}
