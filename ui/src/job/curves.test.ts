import { expect, test } from "vitest";
import type { AttemptView, ProgressView, SeriesView } from "../api/types";
import { ranSeconds, secondsLeft, wholeSpan, within } from "./attempts";
import {
  divergedAfter,
  drawnFields,
  extremes,
  onGrid,
  overlaid,
  risingSteps,
  smoothed,
} from "./curves";

const attempt = (placed: number, running: number | null, ended: number | null) =>
  ({
    placed_at: placed,
    running_at: running,
    ended_at: ended,
    seats: [],
  }) as unknown as AttemptView;
const series = (fields: SeriesView["fields"]): SeriesView => ({
  key: "job:j1",
  times: (Object.values(fields)[0] ?? []).map((_, at) => 10 * at),
  fields,
  pretend: false,
});

test("a job ran while its ranks did, and not while it waited between attempts", () => {
  const attempts = [attempt(0, 2, 60), attempt(100, null, 110), attempt(200, 210, null)];
  expect(ranSeconds(attempts, 250)).toBe(58 + 40);
  expect(wholeSpan({ attempts })).toEqual({ since: 0, until: null });
  expect(wholeSpan({ attempts: attempts.slice(0, 2) })).toEqual({ since: 0, until: 110 });
  expect(wholeSpan({ attempts: [] })).toBeUndefined();
});

test("an attempt's part of a span ends with the attempt", () => {
  const one = attempt(100, 101, 160);
  expect(within(one, { since: 0, until: null })).toEqual({ since: 100, until: 160 });
  expect(within(one, { since: 120, until: 140 })).toEqual({ since: 120, until: 140 });
  expect(within(one, { since: 170, until: null })).toBeUndefined();
  expect(within(attempt(5, 6, null), { since: 0, until: null })?.until).toBeNull();
});

test("the time left follows from the mean step of this attempt", () => {
  const beat = { step: 347, first_step: 47, until: 3000, at: 100 } as ProgressView;
  const spent = { data_seconds: 30, compute_seconds: 110, save_seconds: 10 };
  expect(secondsLeft({ ...beat, ...spent }, 110)).toBeCloseTo((2653 * 150) / 300 - 10);
  expect(secondsLeft({ ...beat, ...spent, until: null }, 110)).toBeUndefined();
  expect(secondsLeft({ ...beat, ...spent, step: 47 }, 110)).toBeUndefined();
});

test("each scalar is drawn, the loss first, counters and bounds not", () => {
  const all = series({
    step: [1],
    zeta: [1],
    accuracy: [0.5],
    "loss.low": [1],
    "loss.high": [3],
    loss: [2],
    samples_per_second: [9],
    data_seconds: [1],
    never: [null],
  });
  expect(drawnFields(all)).toEqual(["loss", "samples_per_second", "accuracy", "zeta"]);
  expect(extremes(all, "loss")).toEqual({ low: [1], high: [3] });
  expect(extremes(all, "zeta")).toEqual({});
});

test("a step that was done again counts as it was done last", () => {
  expect(risingSteps([1, 2, 3, 4, 3, 4, 5])).toEqual([0, 1, 4, 5, 6]);
  expect(risingSteps([null, 1, null, 2])).toEqual([1, 3]);
});

test("points of several nodes are averaged in their cells", () => {
  const parts = [
    { times: [0, 10, 20], values: [1, null, 3] },
    { times: [2, 19, 40], values: [3, 7, 9] },
  ];
  expect(onGrid(parts, 0, 40, 4)).toEqual([2, 7, 3, 9]);
});

test("a loss that is no number any more is noticed, one that was never logged is not", () => {
  const steps = [1, 2, 3, 4];
  expect(divergedAfter(series({ step: steps, loss: [3, 2, null, null] }), 0)).toBe(2);
  expect(divergedAfter(series({ step: steps, loss: [3, 2, null, 1] }), 0)).toBeUndefined();
  expect(divergedAfter(series({ step: steps, loss: [null, null, null, null] }), 0)).toBeUndefined();
  expect(divergedAfter(series({ step: steps, loss: [3, 2, null, null] }), 15)).toBeUndefined();
});

test("jobs are drawn over each other by their steps, or since the begin of each", () => {
  const parts = [
    { name: "a", series: series({ step: [1, 3], loss: [5, 4] }) },
    { name: "b", series: { ...series({ step: [2, 3], loss: [9, null] }), times: [100, 110] } },
  ];
  expect(overlaid(parts, "loss", "step", 0)).toEqual({
    at: [1, 2, 3],
    lines: [
      { name: "a", values: [5, null, 4] },
      { name: "b", values: [null, 9, null] },
    ],
  });
  expect(overlaid(parts, "loss", "time", 0).at).toEqual([0, 10]);
});

test("a job that has not logged a scalar has no line of it, and spoils none", () => {
  const parts = [
    { name: "a", series: series({ step: [1, 3], accuracy: [0.5, 0.6] }) },
    { name: "b", series: series({ step: [2], loss: [9] }) },
  ];
  expect(overlaid(parts, "accuracy", "step", 0).lines).toEqual([
    { name: "a", values: [0.5, null, 0.6] },
    { name: "b", values: [null, null, null] },
  ]);
});

test("smoothing keeps a constant and gaps as they are", () => {
  expect(smoothed([2, null, 2, 2], 0.9)).toEqual([2, null, expect.closeTo(2), expect.closeTo(2)]);
  expect(smoothed([1, 3], 0)).toEqual([1, 3]);
});
