import { expect, test } from "vitest";
import { questionOf } from "./session";

test("a link asks before it puts another user in place of who is logged in", () => {
  expect(questionOf("ann", "eve")).toBe("Log in as eve? You are now ann.");
  expect(questionOf("ann", "ann")).toBeUndefined();
  expect(questionOf(undefined, "eve")).toBeUndefined();
});
