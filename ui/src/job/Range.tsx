/** The span of time that all curves of a job show, chosen or drawn with the pointer. */

import { useState } from "react";
import type { JobDetail } from "../api/types";
import { useNow } from "../parts/clock";
import { duration, full } from "../parts/say";
import { type Span, wholeSpan } from "./attempts";

const PRESETS: [string, number][] = [
  ["24 h", 86_400],
  ["6 h", 21_600],
  ["1 h", 3_600],
  ["15 min", 900],
];
const MOVES_SECONDS = 10; // between two looks at what goes on

export interface Range extends Span {
  /** The end of the span, now where it goes on. */
  end: number;
  preset: string;
  choose: (preset: string) => void;
  zoom: (since: number, until: number) => void;
  presets: string[];
}

/** The begin of the last seconds, in steps, so that it does not move at each look. */
const back = (end: number, seconds: number): number =>
  Math.floor((end - seconds) / (seconds / 60)) * (seconds / 60);

const ALL = "all";
const ZOOMED = "zoomed";

/** The chosen range of a job's curves, undefined before its first attempt. */
export function useRange(job: JobDetail): Range | undefined {
  const [preset, choose] = useState(ALL);
  const [zoomed, setZoomed] = useState<Span>();
  const now = Math.floor(useNow() / MOVES_SECONDS) * MOVES_SECONDS;
  const whole = wholeSpan(job);
  if (!whole) return undefined;
  const end = Math.max(whole.until ?? now, whole.since + 1);
  const length = end - whole.since;
  const seconds = PRESETS.find(([name]) => name === preset)?.[1];
  const shown =
    preset === ZOOMED && zoomed
      ? zoomed
      : {
          since: seconds ? Math.max(whole.since, back(end, seconds)) : whole.since,
          until: whole.until,
        };
  return {
    ...shown,
    end: shown.until ?? end,
    preset,
    choose,
    zoom: (since, until) => {
      setZoomed({ since, until });
      choose(ZOOMED);
    },
    presets: [ALL, ...PRESETS.filter(([, size]) => size < length).map(([name]) => name)],
  };
}

export function RangePicker({ range }: { range: Range }) {
  const zoomed = range.preset === ZOOMED;
  if (range.presets.length < 2 && !zoomed)
    return <span className="soft">drag over a curve to zoom</span>;
  return (
    <>
      <select
        aria-label="Span of the curves"
        value={range.preset}
        onChange={(event) => range.choose(event.target.value)}
      >
        {range.presets.map((name) => (
          <option key={name} value={name}>
            {name === ALL ? "Whole time" : `Last ${name}`}
          </option>
        ))}
        {zoomed && (
          <option value={ZOOMED}>
            {duration(range.end - range.since)} from {full(range.since)}
          </option>
        )}
      </select>
      {zoomed && (
        <button type="button" onClick={() => range.choose(ALL)}>
          Zoom out
        </button>
      )}
    </>
  );
}
