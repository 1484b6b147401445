/** Curves that the head keeps: 24 hours at 10 s, 30 days at 5 min. */

import { useMemo } from "react";
import { useSeries } from "../api/queries";
import { Plot } from "./Plot";

export interface Wanted {
  /** The fields' names as the head keeps them, and as they are called here. */
  fields: Record<string, string>;
  unit: string;
  /** What a value is multiplied with: 100 for shares. */
  times?: number;
}

interface Props extends Wanted {
  of: string;
  since: number;
  tall?: number;
}

export function Curves({ of, since, fields, unit, times = 1, tall }: Props) {
  const names = Object.keys(fields);
  const { data } = useSeries(of, since, names.join(","));
  const lines = useMemo(
    () =>
      names
        .filter((name) => data?.fields[name]?.some((one) => one !== null))
        .map((name) => ({
          name: fields[name] ?? name,
          values: (data?.fields[name] ?? []).map((one) => (one === null ? null : one * times)),
        })),
    [data, names, fields, times],
  );
  if (!data) return null;
  if (data.times.length < 2 || !lines.length)
    return <p className="soft">No data yet: a point is stored every 10 s.</p>;
  return <Plot at={data.times} lines={lines} unit={unit} tall={tall} />;
}
