import { expect, test } from "vitest";
import { specsIn } from "./yaml";

test.each([
  ["name: train: now\n", "line 1: two fields are on one line"],
  ["name: a\nname: b\n", "line 2: this field is given twice (name: b)"],
  ["resources:\n\tgpu: 1\n", "line 2: the line is indented with a tab; use spaces"],
  ['name: "a\n', "line 1: a quote, bracket, brace or comma is missing"],
  ["name: a\nrun\n", "line 2: a colon is missing after the name of a field"],
  ["resources: {gpu: 1\n", "or a bracket there is not closed"],
  ["", "the spec is empty"],
])("a mistake in %j is told in words", (text, says) => {
  expect(() => specsIn(text)).toThrow(says);
});

test("documents are read one by one, and words stay words", () => {
  expect(specsIn("name: no\n---\nname: b\n---\n")).toEqual([{ name: "no" }, { name: "b" }]);
});
