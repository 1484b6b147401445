import { expect, test } from "vitest";
import type { ProcessStacksView } from "../api/types";
import { mergeStacks, shortPath } from "./stacks";

function rank(number: number, line: number, more: Partial<ProcessStacksView> = {}) {
  const frames = [{ file: "/work/train.py", function: "load", line }];
  return {
    command: "python train.py",
    has_global_rank: true,
    local_rank: null,
    node: "n1",
    pid: 100 + number,
    rank: number,
    role: "rank",
    state: "S",
    threads: [{ name: "MainThread", is_main: true, frames }],
    trouble: "",
    ...more,
  } satisfies ProcessStacksView;
}

test("ranks at the same place are one entry, and the one that differs comes last", () => {
  const merged = mergeStacks([rank(2, 18), rank(3, 40), rank(0, 40), rank(1, 40)]);
  expect(merged.map((stack) => stack.places)).toEqual([["rank 0", "rank 1", "rank 3"], ["rank 2"]]);
});

test("a stopped rank says so, and processes that load data are left out", () => {
  const merged = mergeStacks([rank(0, 18, { state: "T" }), rank(1, 7, { role: "worker" })]);
  expect(merged.map((stack) => [stack.places, stack.states])).toEqual([[["rank 0"], ["stopped"]]]);
});

test("a local rank is named where several processes have one rank", () => {
  const merged = mergeStacks([rank(0, 18, { has_global_rank: false, local_rank: 1 })]);
  expect(merged[0]?.places).toEqual(["rank 0 (local rank 1)"]);
});

test("a path is shown without the folder of installed packages", () => {
  expect(shortPath("/venv/lib/python3.11/site-packages/torch/nn.py")).toBe("torch/nn.py");
  expect(shortPath("/work/train.py")).toBe("/work/train.py");
});
