import { expect, test } from "vitest";
import type { JobTimeView } from "../api/types";
import { PARTS, summary } from "./Goodput";

const TIME: JobTimeView = {
  parts: [],
  intervals: [],
  ettr: 0.9754,
  failures: 2,
  mttf_seconds: 840,
  mttr_seconds: 1.38,
  reports_steps: true,
};

test("a job's rates are told as far as they are known", () => {
  expect(summary(TIME)).toBe(
    "Effective training time (ETTR) 97.5 % since its first start; mean time to failure (MTTF) " +
      "14 min; mean time to repair (MTTR) 1.38 s.",
  );
  expect(summary({ ...TIME, ettr: null, mttf_seconds: null, mttr_seconds: null })).toBe("");
});

test("a program that reports no steps is told so", () => {
  expect(summary({ ...TIME, reports_steps: false })).toContain("reports no steps");
});

test("each part of the time has a colour of its own", () => {
  expect(new Set(PARTS.map(([, look]) => look)).size).toBe(PARTS.length);
});
