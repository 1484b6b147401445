/** How busy the GPUs of a job were: a strip for each GPU, attempt by attempt. */

import { useQueries } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { seriesOf } from "../api/queries";
import type { AttemptView, JobDetail } from "../api/types";
import { Card } from "../parts/basic";
import { useNow } from "../parts/clock";
import { NodeLink } from "../parts/HeatMap";
import { clock, duration, percent, plural } from "../parts/say";
import { isTooShort, spanOf } from "./attempts";
import { mean } from "./curves";

const POINTS = 240;
const COLUMNS = 480;
const MOST_ROWS = 64;
const SHOWN_ATTEMPTS = 3;
const SAMPLE_SECONDS = 10;
const MOVES_SECONDS = 10;

interface Row {
  node: string;
  gpu: number;
  times: number[];
  busy: (number | null)[];
  memory: (number | null)[];
}

export function Gpus({ job }: { job: JobDetail }) {
  const [all, setAll] = useState(false);
  const held = job.attempts.filter((one) => one.seats.some((seat) => seat.gpus.length));
  if (!held.length) return null;
  const newest = held.toReversed();
  const shown = all ? newest : newest.slice(0, SHOWN_ATTEMPTS);
  return (
    <Card
      title="Utilisation of its GPUs"
      aside={
        newest.length > SHOWN_ATTEMPTS && (
          <button type="button" onClick={() => setAll(!all)}>
            {all ? "Newest attempts only" : `All ${newest.length} attempts`}
          </button>
        )
      }
    >
      <div className="grid">
        {shown.map((one) => (
          <Strips key={one.number} attempt={one} named={job.attempts.length > 1} />
        ))}
      </div>
    </Card>
  );
}

function useRows(attempt: AttemptView): Row[] {
  const span = spanOf(attempt);
  const seats = attempt.seats.filter((seat) => seat.gpus.length).slice(0, MOST_ROWS);
  const found = useQueries({
    queries: seats.map((seat) => {
      const fields = seat.gpus.flatMap((gpu) => [`gpu${gpu}.utilisation`, `gpu${gpu}.memory`]);
      return seriesOf(`node:${seat.node}`, span.since, fields.join(","), POINTS, span.until);
    }),
  });
  return seats.flatMap((seat, index) =>
    seat.gpus.map((gpu) => ({
      node: seat.node,
      gpu,
      times: found[index]?.data?.times ?? [],
      busy: found[index]?.data?.fields[`gpu${gpu}.utilisation`] ?? [],
      memory: found[index]?.data?.fields[`gpu${gpu}.memory`] ?? [],
    })),
  );
}

function Strips({ attempt, named }: { attempt: AttemptView; named: boolean }) {
  const rows = useRows(attempt);
  const now = Math.floor(useNow() / MOVES_SECONDS) * MOVES_SECONDS;
  const span = spanOf(attempt);
  const until = Math.max(span.until ?? now, span.since + 1);
  const known = rows.some((row) => row.busy.some((one) => one !== null));
  const name = `Attempt ${attempt.number}`;
  return (
    <section className="strips" aria-label={name}>
      <h3>
        {named && <b>{name}</b>}
        <span className="soft">
          {clock(span.since)} to {span.until === null ? "now" : clock(span.until)},{" "}
          {duration(until - span.since)}
        </span>
      </h3>
      {known ? (
        <div className="ranks">
          {rows.slice(0, MOST_ROWS).map((row) => (
            <Strip key={`${row.node} ${row.gpu}`} row={row} since={span.since} until={until} />
          ))}
          <Axis since={span.since} until={until} />
        </div>
      ) : (
        <p className="soft">
          {isTooShort(span, now) && span.until !== null
            ? `The attempt ended before the first reading: readings are taken every ${SAMPLE_SECONDS} s.`
            : `No readings of this time: one is taken every ${SAMPLE_SECONDS} s and kept for 30 days.`}
        </p>
      )}
      {rows.length > MOST_ROWS && (
        <p className="soft">
          The first {MOST_ROWS} of {plural(rows.length, "GPU")}.
        </p>
      )}
    </section>
  );
}

/** The times under the strips: begin, middle and end. */
function Axis({ since, until }: { since: number; until: number }) {
  return (
    <>
      <span />
      <span className="axis soft" aria-hidden="true">
        <i>{clock(since)}</i>
        <i>{clock((since + until) / 2)}</i>
        <i>{clock(until)}</i>
      </span>
      <span className="soft right">busy</span>
      <span className="soft right">memory</span>
    </>
  );
}

function Strip({ row, since, until }: { row: Row; since: number; until: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const busy = mean(row.busy);
  const memory = row.memory.reduce<number>((most, one) => Math.max(most, one ?? 0), 0);
  const name = `${row.node} GPU ${row.gpu}`;
  const says = busy === undefined ? "unknown" : `${percent(busy)} busy on average`;
  useEffect(() => {
    const here = canvas.current;
    const brush = here?.getContext("2d");
    if (!here || !brush) return;
    here.width = COLUMNS;
    here.height = 1;
    const color = getComputedStyle(here).color;
    brush.clearRect(0, 0, COLUMNS, 1);
    const place = (at: number) => ((at - since) / (until - since)) * COLUMNS;
    const gaps = row.times.slice(1).map((at, index) => at - (row.times[index] ?? at));
    const usual = gaps.toSorted((one, other) => one - other)[gaps.length >> 1] ?? SAMPLE_SECONDS;
    for (const [index, at] of row.times.entries()) {
      const value = row.busy[index];
      if (value === null || value === undefined) continue;
      const next = Math.min(row.times[index + 1] ?? until, at + 1.5 * usual, until);
      brush.globalAlpha = Math.max(0.06, value);
      brush.fillStyle = color;
      const from = Math.floor(place(at));
      brush.fillRect(from, 0, Math.max(1, Math.floor(place(next)) - from), 1);
    }
  }, [row.times, row.busy, since, until]);
  return (
    <>
      <span className="cut soft" title={name}>
        <NodeLink id={row.node} /> GPU {row.gpu}
      </span>
      <canvas
        ref={canvas}
        className="linked"
        role="img"
        aria-label={`${name}: ${says}`}
        title={`${name}: ${says}`}
      />
      <span className="right">{busy === undefined ? "–" : percent(busy)}</span>
      <span className="right" title="maximum of its memory in use">
        {memory ? percent(memory) : "–"}
      </span>
    </>
  );
}
