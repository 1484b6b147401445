/** What the ranks print, as they print it; all of it by range, by search and as a file. */

import { useLayoutEffect, useRef, useState } from "react";
import { getFile, part } from "../api/http";
import type { JobDetail } from "../api/types";
import { Card, Wrong } from "../parts/basic";
import { save } from "../parts/save";
import { Lines } from "./Lines";
import { LogSearch } from "./LogSearch";
import { type LogView, useLog } from "./useLog";

const AT_END_PIXELS = 40;
const NEWEST = "";
const LINKS = { live: "live", away: "unavailable now", complete: "complete" };
const LINK_CLASS = { live: "link", away: "link away", complete: "link connecting" };

const isAtEnd = (here: HTMLElement): boolean =>
  here.scrollHeight - here.scrollTop - here.clientHeight < AT_END_PIXELS;

/** How many ranks the newest attempt has. */
function ranksOf(job: JobDetail): number {
  const seats = job.attempts.at(-1)?.seats ?? [];
  const gpus = seats.reduce((sum, seat) => sum + seat.gpus.length, 0);
  return job.per === "gpu" ? Math.max(gpus, seats.length) : seats.length;
}

export function Logs({ job }: { job: JobDetail }) {
  const ranks = ranksOf(job);
  const [chosen, choose] = useState<Omit<LogView, "times">>();
  const [times, setTimes] = useState(false);
  const place = chosen ?? { rank: ranks > 1 ? "" : "0", attempt: undefined, at: undefined };
  const view: LogView = { ...place, times };
  const log = useLog(job, view);
  const [follows, setFollows] = useState(true);
  const [wrong, setWrong] = useState<unknown>();
  const box = useRef<HTMLPreElement>(null);
  const before = useRef<number>(undefined); // how tall it was before lines were put above
  const followedTo = useRef(0);
  const ranked = ranks > 1 && view.rank === "";
  const isLive = view.at === undefined;
  const newest = log.lines.at(-1);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new lines are what is scrolled to
  useLayoutEffect(() => {
    const here = box.current;
    if (!here) return;
    if (before.current !== undefined) {
      here.scrollTop += here.scrollHeight - before.current;
      before.current = undefined;
    } else if (follows && isLive) {
      // A reader who scrolled up is not pulled down again before the event of it has come.
      if (here.scrollTop < followedTo.current - AT_END_PIXELS && !isAtEnd(here)) setFollows(false);
      else here.scrollTop = here.scrollHeight;
      followedTo.current = here.scrollTop;
    }
  }, [newest, log.lines.length, follows, isLive]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the marked line comes with the lines
  useLayoutEffect(() => {
    if (log.marked !== undefined)
      box.current?.querySelector("mark")?.scrollIntoView({ block: "center" });
  }, [log.marked, chosen, times]);
  const show = (change: Partial<LogView>) => {
    choose({ ...place, at: undefined, ...change });
    setFollows(true);
  };
  const act = (work: () => Promise<void>) => {
    setWrong(undefined);
    work().catch(setWrong);
  };
  return (
    <Card
      title="Logs"
      bare
      aside={
        <>
          <span className={LINK_CLASS[log.link]}>
            {isLive ? LINKS[log.link] : "part of the log"}
          </span>
          <Pickers job={job} ranks={ranks} view={view} onShow={show} />
          <button type="button" onClick={() => setTimes(!times)} aria-pressed={times}>
            Times
          </button>
          <button type="button" onClick={() => act(() => download(job, view))}>
            Download
          </button>
          {isLive && log.link !== "complete" && (
            <button type="button" onClick={() => setFollows(!follows)} aria-pressed={follows}>
              {follows ? "Stay here" : "Follow"}
            </button>
          )}
          {!isLive && (
            <button type="button" onClick={() => show({})}>
              Back to the end
            </button>
          )}
        </>
      }
    >
      <LogSearch
        key={`${view.rank} ${view.attempt}`}
        job={job.id}
        rank={view.rank}
        attempt={view.attempt}
        ranked={ranked}
        onPick={(match, attempt) => choose({ rank: `${match.rank}`, attempt, at: match.place })}
      />
      <Wrong error={wrong} />
      <pre
        className="logs"
        ref={box}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
        tabIndex={0}
        role="log"
        aria-label="Logs"
        onScroll={({ currentTarget: here }) => setFollows(isAtEnd(here))}
      >
        {log.earlier && (
          <Edge
            name="Load earlier lines"
            onLoad={() =>
              act(async () => {
                before.current = box.current?.scrollHeight;
                await log.earlier?.();
              })
            }
          />
        )}
        {ranked && log.lines.length > 0 && (
          <span className="note">
            {"These are the newest lines of every rank. For earlier lines, choose a rank.\n"}
          </span>
        )}
        <Lines lines={log.lines} ranked={ranked} timed={times} marked={log.marked} />
        {log.later && (
          <Edge name="Load later lines" onLoad={() => act(async () => log.later?.())} />
        )}
        {!log.lines.length &&
          (log.link === "complete" ? "The job has printed nothing." : "No output yet.")}
      </pre>
    </Card>
  );
}

function Edge({ name, onLoad }: { name: string; onLoad: () => void }) {
  return (
    <button type="button" className="edge" onClick={onLoad}>
      {name}
    </button>
  );
}

interface PickersProps {
  job: JobDetail;
  ranks: number;
  view: LogView;
  onShow: (change: Partial<LogView>) => void;
}

function Pickers({ job, ranks, view, onShow }: PickersProps) {
  const last = job.attempts.at(-1)?.number ?? 1;
  return (
    <>
      {last > 1 && (
        <select
          aria-label="Attempt"
          value={view.attempt ?? NEWEST}
          onChange={({ target }) =>
            onShow({ attempt: target.value === NEWEST ? undefined : Number(target.value) })
          }
        >
          <option value={NEWEST}>Newest attempt</option>
          {job.attempts.toReversed().map((one) => (
            <option key={one.number} value={one.number}>
              Attempt {one.number}
            </option>
          ))}
        </select>
      )}
      {ranks > 1 && (
        <select
          aria-label="Rank"
          value={view.rank}
          onChange={({ target }) => onShow({ rank: target.value })}
        >
          <option value="">Every rank</option>
          {Array.from({ length: ranks }, (_, one) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a rank is its number
            <option key={one} value={one}>
              Rank {one}
            </option>
          ))}
        </select>
      )}
    </>
  );
}

/** The whole log as a file, as it was printed. */
async function download(job: JobDetail, view: LogView): Promise<void> {
  const { rank, attempt } = view;
  const file = await getFile(`/v1/jobs/${part(job.id)}/logs/file`, { rank, attempt });
  save(file, `${job.id}.${attempt ?? job.attempt}${rank === "" ? "" : `.rank-${rank}`}.log`);
}
