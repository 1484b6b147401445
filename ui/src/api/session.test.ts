import { expect, test } from "vitest";
import { linkIn, openedIn, questionOf } from "./session";

test("a link asks before it logs anybody in, unless it is the same user", () => {
  expect(questionOf("ann", "eve")).toBe("Log in as eve? You are now ann.");
  expect(questionOf(undefined, "eve")).toBe("Log in as eve?");
  expect(questionOf("ann", "ann")).toBeUndefined();
});

test("secrets are read from their own part of an address alone", () => {
  const secret = "a".repeat(43);
  expect(linkIn(`#login=${secret}`)).toBe(secret);
  expect(openedIn(`#session=${secret}`)).toBe(secret);
  expect(openedIn(`#login=${secret}`)).toBeUndefined();
  expect(openedIn("#session=short")).toBeUndefined();
});
