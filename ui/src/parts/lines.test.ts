import { expect, test } from "vitest";
import { marker } from "./lines";

test("each line has its rank, however the pieces were cut and mixed", () => {
  const lines = marker();
  expect(lines.take(0, "step 1\nste")).toBe("[0] step 1\n");
  expect(lines.take(1, "step 1\n")).toBe("[1] step 1\n");
  expect(lines.take(0, "p 2\n\n")).toBe("[0] step 2\n[0] \n");
  expect(lines.take(1, "no end")).toBe("");
  expect(lines.rest()).toBe("[1] no end\n");
});
