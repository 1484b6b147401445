/** Curves of a job: by time or by step, of one series or of many brought onto one grid. */

import type { SeriesView } from "../api/types";

/** Jobs that are compared at once. */
export const MOST_COMPARED = 8;

export type Values = (number | null)[];

/** Fields that count what the training loop did, and are no curve of their own. */
const COUNTS = new Set(["step", "data_seconds", "compute_seconds", "save_seconds"]);
const FIRST = ["loss", "samples_per_second"];
const LEAST = ".low";
const MOST = ".high";

/** The fields of a job that are drawn: those of which anything is known, the loss first. */
export function drawnFields(series: SeriesView): string[] {
  const known = Object.keys(series.fields).filter(
    (name) =>
      !COUNTS.has(name) &&
      !name.endsWith(LEAST) &&
      !name.endsWith(MOST) &&
      series.fields[name]?.some((one) => one !== null),
  );
  const place = (name: string) => (FIRST.indexOf(name) + FIRST.length + 1) % (FIRST.length + 1);
  return known.sort((one, other) => place(one) - place(other) || one.localeCompare(other));
}

/** The least and the greatest value between two points, where they are kept. */
export function extremes(series: SeriesView, name: string): { low?: Values; high?: Values } {
  const low = series.fields[name + LEAST];
  const high = series.fields[name + MOST];
  return low && high ? { low, high } : {};
}

/** Indices of the points whose steps rise. Of a step that was done twice the last one counts. */
export function risingSteps(steps: readonly (number | null)[]): number[] {
  const kept: number[] = [];
  let next = Number.POSITIVE_INFINITY;
  for (let at = steps.length - 1; at >= 0; at--) {
    const step = steps[at];
    if (step === null || step === undefined || step >= next) continue;
    kept.push(at);
    next = step;
  }
  return kept.reverse();
}

export const pick = <T>(values: readonly T[], indices: readonly number[]): T[] =>
  indices.map((at) => values[at] as T);

/** Means of points on a grid of so many cells; null where a cell has none. */
export function onGrid(
  parts: readonly { times: readonly number[]; values: readonly (number | null)[] }[],
  since: number,
  until: number,
  cells: number,
): Values {
  const sums = new Float64Array(cells);
  const counts = new Uint32Array(cells);
  for (const { times, values } of parts) {
    for (const [index, time] of times.entries()) {
      const value = values[index];
      const cell = Math.floor(((time - since) / (until - since)) * cells);
      if (value === null || value === undefined || cell < 0 || cell > cells) continue;
      const at = Math.min(cell, cells - 1);
      sums[at] = (sums[at] ?? 0) + value;
      counts[at] = (counts[at] ?? 0) + 1;
    }
  }
  return Array.from(sums, (sum, at) => (counts[at] ? sum / (counts[at] ?? 1) : null));
}

/** The step after which the loss is no finite number any more, undefined where it still is one. */
export function divergedAfter(series: SeriesView, since: number): number | undefined {
  const losses = series.fields.loss ?? [];
  const steps = series.fields.step ?? [];
  const last = losses.findLastIndex((one) => one !== null);
  const newest = steps.findLastIndex((one) => one !== null);
  const at = series.times[last];
  if (last < 0 || at === undefined || at < since) return undefined;
  const [step, now] = [steps[last], steps[newest]];
  if (step === null || step === undefined || now === null || now === undefined) return undefined;
  return now > step && losses[newest] === null ? step : undefined;
}

/** Exponential smoothing: 0 leaves the curve as it is, 0.9 smooths much. Corrected at its begin. */
export function smoothed(values: readonly (number | null)[], by: number): Values {
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = by * mean + (1 - by) * value;
    weight = by * weight + (1 - by);
    return mean / weight;
  });
}

/** Curves of several jobs in one plot: by step, or by the seconds since the first point of each. */
export function overlaid(
  parts: readonly { name: string; series: SeriesView }[],
  field: string,
  by: "step" | "time",
  smoothing: number,
): { at: number[]; lines: { name: string; values: Values }[] } {
  const curves = parts.map(({ name, series }) => {
    const steps = series.fields.step ?? [];
    const kept = by === "step" ? risingSteps(steps) : series.times.map((_, at) => at);
    const first = series.times[0] ?? 0;
    const places = kept.map((at) => (by === "step" ? steps[at] : (series.times[at] ?? 0) - first));
    const own = series.fields[field];
    const values = own ? smoothed(pick(own, kept), smoothing) : [];
    return { name, points: new Map(places.map((place, at) => [place ?? 0, values[at] ?? null])) };
  });
  const at = [...new Set(curves.flatMap(({ points }) => [...points.keys()]))].sort(
    (one, other) => one - other,
  );
  return {
    at,
    lines: curves.map(({ name, points }) => ({
      name,
      values: at.map((place) => points.get(place) ?? null),
    })),
  };
}

export const mean = (values: readonly (number | null)[]): number | undefined => {
  const known = values.filter((one): one is number => one !== null);
  return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : undefined;
};
