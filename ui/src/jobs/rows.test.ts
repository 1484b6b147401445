import { expect, test } from "vitest";
import { busyOfJobs } from "../api/queries";
import type { JobView } from "../api/types";
import { grouped, isGroup, nextSort, sorted, states } from "./rows";

const job = (id: string, more: Partial<JobView> = {}): JobView =>
  ({
    id,
    name: id,
    state: "QUEUED",
    array: null,
    ended_at: null,
    started_at: null,
    submitted_at: 0,
    ...more,
  }) as JobView;

test("jobs of an array are one row, unless they are few or the array is looked at", () => {
  const parts = [3, 2, 1].map((index) =>
    job(`j5_${index}`, {
      array: "j5",
      name: `sweep_${index}`,
      state: index > 1 ? "RUNNING" : "DONE",
    }),
  );
  const few = [job("j4_1", { array: "j4" }), job("j4_0", { array: "j4" })];
  const rows = grouped([job("j9"), ...parts, ...few, job("j1")], "");
  expect(rows.map((row) => (isGroup(row) ? `${row.name}:${row.jobs.length}` : row.id))).toEqual([
    "j9",
    "sweep:3",
    "j4_1",
    "j4_0",
    "j1",
  ]);
  const [group] = grouped(parts, "");
  expect(group && isGroup(group) && states(group)).toBe("2 running, 1 done");
  expect(grouped(parts, "j5")).toEqual(parts);
});

test("a column sorts, sorts the other way, and lets go", () => {
  const jobs = [job("b", { name: "n10" }), job("a", { name: "n2" })];
  expect(sorted(jobs, "name", 0).map((one) => one.id)).toEqual(["a", "b"]);
  expect(sorted(jobs, "-name", 0).map((one) => one.id)).toEqual(["b", "a"]);
  expect(sorted(jobs, "nonsense", 0)).toEqual(jobs);
  expect([nextSort(undefined, "ran"), nextSort("ran", "ran"), nextSort("-ran", "ran")]).toEqual([
    "ran",
    "-ran",
    undefined,
  ]);
  const ends = [job("x", { ended_at: 5 }), job("y"), job("z", { ended_at: 9 })];
  expect(sorted(ends, "ended", 10).map((one) => one.id)).toEqual(["y", "z", "x"]);
});

test("a job is as busy as its GPUs are on average, of those that tell", () => {
  const node = { holders: ["j1", "j1,j2", "", "j1"], utilisation: [1, 0.5, 0.9, null] };
  const busy = busyOfJobs({ nodes: [node] as never });
  expect([busy.get("j1"), busy.get("j2"), busy.get("j3")]).toEqual([0.75, 0.5, undefined]);
});
