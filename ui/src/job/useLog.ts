/** The lines of a job's log that the page holds: the newest and what follows, or those around a
 * place, and what was asked for before and behind them. */

import { useCallback, useEffect, useRef, useState } from "react";
import { get, part } from "../api/http";
import type { JobDetail, LogRange } from "../api/types";
import { followLog } from "./logStream";
import { type Line, Screen } from "./terminal";

const TAIL_LINES = 1000;
const MOST_LINES = 20_000;
const BEFORE_BYTES = 16_384; // above the line that was searched for
const DRAW_MS = 100;
const EARLIER_KEYS = 1_000_000; // lines that are put above the others count down from there

export interface LogView {
  rank: string;
  /** Undefined: the newest attempt, and all that follow it. */
  attempt: number | undefined;
  /** A place to look at, in place of the end. */
  at: number | undefined;
  /** Whether each line has its time before it. */
  times: boolean;
}

export interface Log {
  lines: Line[];
  link: "live" | "away" | "complete";
  /** The line that was searched for. */
  marked: number | undefined;
  earlier: (() => Promise<void>) | undefined;
  later: (() => Promise<void>) | undefined;
}

interface Bounds {
  before?: number;
  after?: number;
  size?: number;
}

/** What of which log is asked for. */
interface Of {
  rank: string;
  attempt: number | undefined;
  times: boolean;
}

const range = (job: string, { rank, attempt, times }: Of, bounds: Bounds) =>
  get<LogRange>(`/v1/jobs/${part(job)}/logs/range`, {
    rank,
    attempt,
    times: times ? 1 : undefined,
    ...bounds,
  });

/** Lines of a range of one rank, with keys that begin with a number. */
function linesOf({ data, rank, times }: LogRange, first: number): Line[] {
  const screen = new Screen(Number.POSITIVE_INFINITY);
  screen.take(rank, data.endsWith("\n") ? data : `${data}\n`, times);
  return screen.lines.map((line) => ({ ...line, key: first + line.key }));
}

/** `view.rank` is "" for every rank: then only the newest lines are held. */
export function useLog(job: JobDetail, view: LogView): Log {
  const [lines, setLines] = useState<Line[]>([]);
  const [above, setAbove] = useState<Line[]>([]);
  const [link, setLink] = useState<Log["link"]>("live");
  const [marked, setMarked] = useState<number>();
  const [begin, setBegin] = useState(0);
  const [oldest, setOldest] = useState(0);
  const [end, setEnd] = useState<number>(); // of what is held around a place
  const keys = useRef(0);
  const { rank, attempt, at, times } = view;
  const id = job.id;

  useEffect(() => {
    let left = false;
    let stop: (() => void) | undefined;
    let timer: number | undefined;
    const screen = new Screen(MOST_LINES);
    keys.current = 0;
    setLines([]);
    setAbove([]);
    setMarked(undefined);
    setEnd(undefined);
    setBegin(0);
    setOldest(0);
    setLink("live");
    const draw = () => {
      timer = undefined;
      setLines([...screen.lines, ...screen.unfinished()]);
    };
    const soon = () => {
      timer ??= window.setTimeout(draw, DRAW_MS);
    };
    const listen = (places: string[], shown: number | undefined) => {
      let now = shown;
      stop = followLog(
        { job: id, rank, attempt, places, tail: TAIL_LINES, times },
        {
          piece: (piece) => {
            if (now !== undefined && piece.attempt !== null && piece.attempt > now)
              screen.note(`attempt ${piece.attempt} begins`);
            now = Math.max(now ?? 0, piece.attempt ?? 0);
            screen.take(piece.rank, piece.data, piece.times);
            soon();
          },
          link: (isThere) => setLink(isThere ? "live" : "away"),
          end: () => setLink("complete"),
        },
      );
    };
    const begins = (part: LogRange) => {
      setBegin(part.begin);
      setOldest(part.oldest);
    };
    const around = async (place: number) => {
      const [before, after] = await Promise.all([
        range(id, { rank, attempt, times }, { before: place, size: BEFORE_BYTES }),
        range(id, { rank, attempt, times }, { after: place }),
      ]);
      if (left) return;
      begins(before);
      const top = before.data ? linesOf(before, 0) : [];
      setLines([...top, ...linesOf(after, top.length)]);
      setMarked(top.length);
      setEnd(after.end < after.newest ? after.end : undefined);
      keys.current = top.length + after.data.length;
      setLink("complete");
    };
    const newest = async () => {
      const part = await range(id, { rank, attempt, times }, {});
      if (left) return;
      begins(part);
      screen.take(part.rank, part.data, part.times);
      draw();
      listen([`${part.attempt}:${part.rank}:${part.end}`], part.attempt);
    };
    const asked = rank === "" ? undefined : at === undefined ? newest() : around(at);
    if (asked) asked.catch(() => !left && setLink("away"));
    else listen([], undefined);
    return () => {
      left = true;
      stop?.();
      window.clearTimeout(timer);
    };
  }, [id, rank, attempt, at, times]);

  const earlier = useCallback(async () => {
    const part = await range(id, { rank, attempt, times }, { before: begin });
    setBegin(part.data ? part.begin : 0);
    setAbove((old) => {
      const first = (old[0]?.key ?? -EARLIER_KEYS) - part.data.length - 1;
      return part.data ? [...linesOf(part, first), ...old] : old;
    });
  }, [id, rank, attempt, times, begin]);
  const later = useCallback(async () => {
    const part = await range(id, { rank, attempt, times }, { after: end ?? 0 });
    setEnd(part.data && part.end < part.newest ? part.end : undefined);
    const first = keys.current;
    keys.current += part.data.length + 1;
    setLines((old) => [...old, ...linesOf(part, first)]);
  }, [id, rank, attempt, times, end]);

  return {
    lines: above.length ? [...above, ...lines] : lines,
    link,
    marked,
    earlier: rank !== "" && begin > oldest ? earlier : undefined,
    later: end === undefined ? undefined : later,
  };
}
