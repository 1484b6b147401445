import { expect, test } from "vitest";
import { overwritten, Screen, segmentsOf } from "./terminal";

const E = "\u001b[";
const shown = (screen: Screen): string[] =>
  [...screen.lines, ...screen.unfinished()].map((line) =>
    line.segments.map((one) => one.text).join(""),
  );

test("a progress bar that is drawn over itself is one line, the newest", () => {
  const screen = new Screen(100);
  screen.take(0, "begin\n");
  for (let percent = 0; percent <= 100; percent += 10)
    screen.take(0, `\rtraining: ${percent}%|${"#".repeat(percent / 10)}`);
  expect(shown(screen)).toEqual(["begin", `training: 100%|${"#".repeat(10)}`]);
  screen.take(0, "\nend\r\n");
  expect(shown(screen)).toEqual(["begin", `training: 100%|${"#".repeat(10)}`, "end"]);
});

test("a bar that ends with its carriage return stays, also cut anywhere", () => {
  expect(overwritten("50 %\r100 %\r")).toBe("100 %");
  expect(overwritten(`50 %\r${E}K`)).toBe("50 %");
  const whole = "a 1\ra 2\ra 3\r\nplain\r\n";
  const screen = new Screen(100);
  for (const letter of whole) screen.take(0, letter);
  expect(shown(screen)).toEqual(["a 3", "plain"]);
});

test("colours are kept, other sequences are not shown", () => {
  const { segments } = segmentsOf(`${E}32mINFO${E}0m line ${E}1;31merror${E}0m${E}2K${E}?25h end`);
  expect(segments).toEqual([
    { text: "INFO", ink: 2 },
    { text: " line " },
    { text: "error", ink: 1, bold: true },
    { text: " end" },
  ]);
  expect(segmentsOf(`${E}38;5;196mred`).segments).toEqual([{ text: "red", ink: 9 }]);
  expect(segmentsOf(`${E}38;2;0;0;255mblue`).segments).toEqual([{ text: "blue", ink: 12 }]);
  expect(segmentsOf(`${E}48;5;3;1mbold`).segments).toEqual([{ text: "bold", bold: true }]);
});

test("a colour goes on into the next line of the same rank", () => {
  const screen = new Screen(100);
  screen.take(0, `${E}31mred\n`);
  screen.take(1, "plain\n");
  screen.take(0, "still red\n");
  expect(screen.lines.map((line) => [line.rank, line.segments[0]?.ink])).toEqual([
    [0, 1],
    [1, undefined],
    [0, 1],
  ]);
});

test("a line has the time at which it began, of each rank", () => {
  const screen = new Screen(100);
  screen.take(0, "a\nbeg", [1, 2]);
  screen.take(1, "other\n", [null, null]);
  screen.take(0, "un\nc\nrest", [5, 6, 7]);
  screen.take(0, " of it", [9]);
  expect([...screen.lines, ...screen.unfinished()].map((line) => line.at)).toEqual([
    1,
    null,
    2,
    6,
    7,
  ]);
  expect(shown(screen)).toEqual(["a", "other", "begun", "c", "rest of it"]);
});

test("lines are bounded, and keep their keys", () => {
  const screen = new Screen(100);
  for (let number = 0; number < 500; number++) screen.take(0, `line ${number}\n`);
  expect(screen.lines.length).toBeLessThan(111);
  expect(screen.lines.at(-1)?.key).toBe(499);
  expect(shown(screen).at(-1)).toBe("line 499");
});
