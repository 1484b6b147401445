import { expect, test } from "vitest";
import { noChange, noOperating, noSubmit } from "./rights";

const who = (role: string, operates: string[] = []) => ({ user: "ann", role, operates });
const mine = { owner: "ann", queue: "speech" };
const others = { owner: "bob", queue: "speech" };

test("a viewer may do nothing, and the reason names the role", () => {
  expect(noSubmit(who("viewer"))).toBe("You are ann, a viewer: viewers may not submit jobs.");
  expect(noChange(who("viewer"), mine)).toContain("a viewer");
  expect(noOperating(who("viewer"))).toContain("only an operator");
});

test("a user changes their own jobs, and those of queues that they operate", () => {
  expect(noSubmit(who("user"))).toBeUndefined();
  expect(noChange(who("user"), mine)).toBeUndefined();
  expect(noChange(who("user"), others)).toBe(
    "This job belongs to bob: only bob or an operator may change it.",
  );
  expect(noChange(who("user", ["speech"]), others)).toBeUndefined();
  expect(noOperating(who("user"))).toBe("You are ann, a user: only an operator may change nodes.");
});

test("operators and admins change all", () => {
  for (const role of ["operator", "admin"]) {
    expect(noChange(who(role), others)).toBeUndefined();
    expect(noOperating(who(role))).toBeUndefined();
  }
});
