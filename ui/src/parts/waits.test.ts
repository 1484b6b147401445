import { expect, test } from "vitest";
import type { JobView } from "../api/types";
import { waitsOf } from "./waits";

const waited = (seconds: number | null): JobView =>
  ({ submitted_at: 100, started_at: seconds === null ? null : 100 + seconds }) as JobView;

test("waits are of jobs that have started, by their share", () => {
  const jobs = [null, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, null].map(waited);
  expect(waitsOf(jobs)).toEqual({ jobs: 10, half: 5, most: 9, longest: 10 });
  expect(waitsOf([waited(null)])).toBeUndefined();
  expect(waitsOf([waited(3)])).toEqual({ jobs: 1, half: 3, most: 3, longest: 3 });
});
