import { expect, test } from "vitest";
import type { NodeView, ReportView } from "../api/types";
import { totalOf, withoutUnused } from "./Money";
import { sorted } from "./Nodes";
import { rounded } from "./Plan";
import { lentAside, lentNote, replicaState, revisionState } from "./Service";
import { modelOf, readyOf } from "./Services";

const node = (id: string, cpus: number): NodeView => ({ id, cpus }) as NodeView;

test("nodes are in their natural order, and by a column the most come first", () => {
  const nodes = [node("n10", 2), node("n2", 8), node("n1", 2)];
  const ids = (found: readonly NodeView[]) => found.map((one) => one.id);
  expect(ids(sorted(nodes, undefined, false))).toEqual(["n1", "n2", "n10"]);
  const cpus = { name: "CPUs", by: (one: NodeView) => one.cpus };
  expect(ids(sorted(nodes, cpus, false))).toEqual(["n2", "n1", "n10"]);
  expect(ids(sorted(nodes, cpus, true))).toEqual(["n10", "n1", "n2"]);
});

test("a number has no more digits than its error leaves", () => {
  expect(rounded(1_160_583.5, 0.06)).toBe("1,160,000");
  expect(rounded(12.3456, 0.2)).toBe("12");
  expect(rounded(0.012345, 0.01)).toBe("0.01");
  expect([rounded("unknown", 0.1), rounded(0, 0.1), rounded(5, 0)]).toEqual(["unknown", "0", "5"]);
});

test("of a kind of price that nothing has there is no column", () => {
  const columns = ["allocated", "money", "wasted", "not used", "list price", "wasted of it"].map(
    (name) => ({ name, unit: "" }),
  );
  const report = (total: number[]): ReportView =>
    ({ kind: "cost", columns, total, rows: [], days: [] }) as unknown as ReportView;
  const names = (total: number[]) => withoutUnused(report(total)).columns.map((one) => one.name);
  expect(names([1, 2, 0, 0, 0, 0])).toEqual(["allocated", "money", "wasted", "not used"]);
  expect(names([1, 0, 0, 0, 3, 0])).toEqual(["allocated", "list price", "wasted of it"]);
  expect(names([1, 2, 0, 0, 3, 0])).toHaveLength(6);
});

test("what was not measured has no unit", () => {
  const money = { name: "not used", unit: "USD" };
  expect(totalOf(null, money)).toEqual(["not measured", ""]);
  expect(totalOf(0, money)).toEqual(["0", "USD"]);
  expect(totalOf(0.5, { name: "utilisation", unit: "share" })[1]).toBe("");
});

test("a service is called by the name of its model, or by its own", () => {
  expect(modelOf({ name: "chat", models: ["chat", "org/name"] })).toBe("org/name");
  expect(modelOf({ name: "chat", models: ["chat"] })).toBe("chat");
});

test("the replicas of each role are counted apart", () => {
  const roles = [
    { role: "prefill", ready: 1, wanted: 2, replicas: "1..4", reason: "" },
    { role: "decode", ready: 3, wanted: 3, replicas: "3", reason: "" },
  ];
  expect(readyOf({ ready: 4, wanted: 5, roles })).toBe("prefill 1 of 2, decode 3 of 3");
  expect(readyOf({ ready: 4, wanted: 5, roles: [] })).toBe("4 of 5");
});

test("a replica is ready, draining, or as its job", () => {
  const replica = { state: "RUNNING", ready_at: null, draining_at: null };
  expect(replicaState(replica)).toBe("RUNNING");
  expect(replicaState({ ...replica, ready_at: 1 })).toBe("READY");
  expect(replicaState({ ...replica, ready_at: 1, draining_at: 2 })).toBe("DRAINING");
});

test("a revision that did not pass its canary says why", () => {
  const rollout = {
    revision: 2,
    canary: 4,
    canary_passed: false,
    turned_back: 3,
    turned_back_reason: "2 % errors",
  };
  const states = [1, 2, 3, 4].map((number) => revisionState(rollout, number));
  expect(states[1]).toBe("serves");
  expect(states[2]).toContain("2 % errors");
  expect(states[3]).toContain("canary");
  expect(revisionState({ ...rollout, canary_passed: true }, 4)).toContain("replaces");
});

test("a note says how often lent GPUs were back in time", () => {
  expect(lentNote({ take_backs: 0, take_backs_in_time: 0 })).toBe("never taken back from a job");
  expect(lentNote({ take_backs: 4, take_backs_in_time: 3 })).toBe("taken back 4 times, 3 in time");
});

test("the card of lent GPUs says what was lent, lost and earned, and leaves out nothings", () => {
  const lent = {
    asleep_gpu_hours: 40,
    lent_gpu_hours: 24.5,
    lost_gpu_hours: 0.5,
    earned: 49,
    wake_seconds: 1.4,
  };
  expect(lentAside(lent, "EUR")).toBe(
    "24.5 of 40 GPU-h asleep were lent; 0.5 of them lost; earned 49 EUR; slowest wake 1.40 s",
  );
  const none = { ...lent, lost_gpu_hours: 0, earned: 0, wake_seconds: null };
  expect(lentAside(none, "EUR")).toBe("24.5 of 40 GPU-h asleep were lent");
});
