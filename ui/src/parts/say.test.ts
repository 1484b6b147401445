import { expect, test } from "vitest";
import {
  amount,
  bytes,
  count,
  day,
  duration,
  full,
  moment,
  ownTime,
  percent,
  plural,
  shape,
  tick,
  words,
} from "./say";

test("a duration has its two largest units at most", () => {
  expect([0, 4.4, 61, 3_599, 3_600, 7_260, 90_000, 864_000].map(duration)).toEqual([
    "0 s",
    "4 s",
    "1 min 1 s",
    "59 min",
    "1 h",
    "2 h 1 min",
    "1 d 1 h",
    "10 d",
  ]);
});

test("sizes and numbers have no more digits than tell something", () => {
  expect([999, 1_500, 80_000_000_000].map(bytes)).toEqual(["999 B", "1.5 kB", "80 GB"]);
  expect([0.125, 12.55, 10_000].map(count)).toEqual(["0.13", "12.6", "10,000"]);
  expect(percent(0.4567)).toBe("45.7 %");
  expect([plural(1, "job"), plural(1200, "job")]).toEqual(["1 job", "1,200 jobs"]);
});

test("an amount is read as people write it", () => {
  expect(["70.4B", "15 T", "1e12", "8k", "0.7", "-3"].map(amount)).toEqual([
    70_400_000_000, 15e12, 1e12, 8_000, 0.7, -3,
  ]);
});

test("names of fields are said in the words of the trade", () => {
  expect(words("usd_per_gpu_hour")).toBe("USD per GPU hour");
  expect(words("gpus")).toBe("GPUs");
  expect(words("kv_precision")).toBe("KV precision");
});

test("a shape says what each node gives", () => {
  const one = { nodes: 2, gpus_per_node: 8, gpu_type: "h100", cpus_per_node: 4 };
  expect(shape(one)).toBe("2 × 8 h100");
  expect(shape({ ...one, nodes: 1, gpu_type: null })).toBe("8 GPU");
  expect(shape({ ...one, nodes: 1, gpus_per_node: 0 })).toBe("4 CPU");
});

test("a tick says seconds only under a short curve", () => {
  const noon = new Date();
  noon.setHours(12, 34, 56);
  expect(tick(noon.getTime() / 1000, 60)).toBe("12:34:56");
  expect(tick(noon.getTime() / 1000, 3600)).toBe("12:34");
  expect(tick(86_400 * 20, 3600)).toMatch(/^01-2\d \d\d:\d\d$/);
});

test("dates are ISO's, times have one zone, and the head's sentences are in it too", () => {
  const at = Date.UTC(2026, 10, 23, 20, 12, 38) / 1000;
  expect(day(at)).toMatch(/^2026-11-2[34]$/);
  expect(full(at)).toMatch(/^2026-11-2[34] \d\d:\d\d:\d\d [A-Z]{2,5}([+-]\d+(:\d+)?)?$/);
  expect(ownTime("out at 2026-11-23 20:12:38 UTC, or later")).toBe(
    `out at ${moment(at)}, or later`,
  );
  expect(ownTime("at 2026-99-23 20:12:38 UTC")).toBe("at 2026-99-23 20:12:38 UTC");
});
