/** Specs as text, and mistakes in them in words. */

import { parseAllDocuments, type YAMLError } from "yaml";

const NO_COLON = "a colon is missing after the name of a field";
const MISTAKES: Record<string, string> = {
  BAD_DQ_ESCAPE: "a backslash in double quotes begins no known escape; use single quotes",
  BAD_INDENT: "the indentation does not match the lines above, or a bracket there is not closed",
  BAD_SCALAR_START: "a value cannot begin with this character; put the value in quotes",
  BLOCK_AS_IMPLICIT_KEY:
    "two fields are on one line; write each on its own line, or put a value with a colon in quotes",
  BLOCK_IN_FLOW: "a block cannot be inside of braces or brackets",
  DUPLICATE_KEY: "this field is given twice",
  MISSING_CHAR: "a quote, bracket, brace or comma is missing",
  MULTILINE_IMPLICIT_KEY: NO_COLON,
  TAB_AS_INDENT: "the line is indented with a tab; use spaces",
  UNEXPECTED_TOKEN: "this line contains text that does not belong to the field before it",
};
const MOST_SHOWN = 60;

/** For example: line 2: this field is given twice (name: train). */
export function mistake(text: string, error: Pick<YAMLError, "code" | "message" | "pos">): string {
  const lines = text.split("\n");
  let number = text.slice(0, error.pos[0]).split("\n").length;
  while (number > 1 && !lines[number - 1]?.trim()) number -= 1; // found behind the last line
  const line = (lines[number - 1] ?? "").trim();
  const bare = error.code === "MISSING_CHAR" && /^[\w-]+$/.test(line);
  const says = (bare ? NO_COLON : MISTAKES[error.code]) ?? error.message.split(/ at line|\n/)[0];
  const shown = line.length > MOST_SHOWN ? `${line.slice(0, MOST_SHOWN)} …` : line;
  return `line ${number}: ${says}${shown ? ` (${shown})` : ""}`;
}

/** The documents of a text in YAML. Throws the first mistake, with its line. */
export function specsIn(text: string): unknown[] {
  const specs: unknown[] = [];
  for (const document of parseAllDocuments(text, { version: "1.2" })) {
    const [wrong] = document.errors;
    if (wrong) throw new Error(mistake(text, wrong));
    const spec = document.toJS();
    if (spec !== null) specs.push(spec);
  }
  if (!specs.length) throw new Error("the spec is empty");
  return specs;
}
