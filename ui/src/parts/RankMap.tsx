/** How busy each GPU of a job was, a row for each: a slow or idle one stands out. */

import { useQueries } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { get } from "../api/http";
import type { Seat, Series } from "../api/types";

const POINTS = 160;
const MOST_ROWS = 128;

interface Row {
  name: string;
  values: (number | null)[];
}

export function RankMap({ seats, since }: { seats: readonly Seat[]; since: number }) {
  const found = useQueries({
    queries: seats.map((seat) => {
      const fields = seat.gpus.map((gpu) => `gpu${gpu}.utilisation`).join(",");
      const asked = { key: `node:${seat.node}`, fields, since, points: POINTS };
      return {
        queryKey: ["series", asked.key, fields, Math.round(since)],
        queryFn: () => get<Series>("/v1/series", asked),
        refetchInterval: 10_000,
      };
    }),
  });
  const rows: Row[] = seats.flatMap((seat, index) =>
    seat.gpus.map((gpu) => ({
      name: `${seat.node} GPU ${gpu}`,
      values: found[index]?.data?.fields[`gpu${gpu}.utilisation`] ?? [],
    })),
  );
  if (!rows.some((row) => row.values.length))
    return <p className="soft">Nothing is known yet: a point is kept each 10 s.</p>;
  return (
    <div className="grid">
      <div className="ranks">
        {rows.slice(0, MOST_ROWS).map((row, rank) => (
          <RowOf key={row.name} row={row} rank={rank} />
        ))}
      </div>
      {rows.length > MOST_ROWS && (
        <p className="soft">
          The first {MOST_ROWS} of {rows.length}.
        </p>
      )}
    </div>
  );
}

function RowOf({ row, rank }: { row: Row; rank: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const known = row.values.filter((one): one is number => one !== null);
  const mean = known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : undefined;
  const says = mean === undefined ? "unknown" : `${Math.round(mean * 100)} % busy`;
  useEffect(() => {
    const here = canvas.current;
    const brush = here?.getContext("2d");
    if (!here || !brush) return;
    here.width = Math.max(1, row.values.length);
    here.height = 1;
    const style = getComputedStyle(here);
    brush.fillStyle = style.backgroundColor;
    brush.clearRect(0, 0, here.width, 1);
    for (const [at, value] of row.values.entries()) {
      if (value === null) continue;
      brush.globalAlpha = Math.max(0.04, value);
      brush.fillStyle = style.color;
      brush.fillRect(at, 0, 1, 1);
    }
  }, [row.values]);
  return (
    <>
      <span className="cut soft" title={`rank ${rank}`}>
        {row.name}
      </span>
      <canvas
        ref={canvas}
        className="linked"
        role="img"
        aria-label={`${row.name}: ${says}`}
        title={`${row.name}: ${says}`}
      />
    </>
  );
}
