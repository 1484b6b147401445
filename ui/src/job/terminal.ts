/** What a terminal would show of a program's output: carriage returns and colours, line by line. */

/** A piece of a line in one colour. `ink`: 0 to 15, or undefined for the text's own colour. */
export interface Segment {
  text: string;
  ink?: number | undefined;
  bold?: boolean | undefined;
}

export interface Line {
  /** Rising over the whole log, so that a line keeps its name while others come. */
  key: number;
  rank: number | null;
  segments: Segment[];
  /** When it reached the head, in seconds since 1970, where that is known. */
  at?: number | null | undefined;
  /** A line of the page's own, about the log. */
  note?: boolean;
}

interface Style {
  ink?: number | undefined;
  bold?: boolean | undefined;
}

const ESCAPE = String.fromCharCode(27);
const SEQUENCE = new RegExp(
  `${ESCAPE}(?:\\[([0-9;:?]*)[ -/]*([@-~])|\\][^\\u0007]*\\u0007|[@-Z\\\\^_])`,
);
const CONTROLS = /\p{Cc}/gu;
const TABLE = 16; // colours that have a name; those of a larger table are brought to them

/** The style after the numbers of an SGR sequence. */
function styled(style: Style, numbers: string): Style {
  const codes = numbers.split(/[;:]/).map(Number);
  let now: Style = { ...style };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 0) now = {};
    else if (code === 1) now.bold = true;
    else if (code === 22) now.bold = undefined;
    else if (code >= 30 && code <= 37) now.ink = code - 30;
    else if (code >= 90 && code <= 97) now.ink = code - 82;
    else if (code === 39) now.ink = undefined;
    else if (code === 38 || code === 48) {
      const size = codes[at + 1] === 5 ? 2 : 4;
      if (code === 38) now.ink = size === 2 ? indexed(codes[at + 2] ?? 0) : direct(codes, at + 2);
      at += size;
    }
  }
  return now;
}

/** A colour of the table of 256 as one of 16. */
function indexed(number: number): number {
  if (number < TABLE) return number;
  if (number >= 232) return number < 244 ? 8 : 7;
  const cube = number - TABLE;
  return nearest(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

const direct = (codes: number[], at: number): number =>
  nearest(codes[at] ?? 0, codes[at + 1] ?? 0, codes[at + 2] ?? 0);

function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue);
  const bit = (value: number) => (value > most / 2 && value > 40 ? 1 : 0);
  return bit(red) + 2 * bit(green) + 4 * bit(blue) + (most > 200 ? 8 : 0);
}

/** The segments of one line's text, and the style in which the next line begins. */
export function segmentsOf(text: string, style: Style = {}): { segments: Segment[]; style: Style } {
  const segments: Segment[] = [];
  let now = style;
  let rest = text;
  const add = (plain: string) => {
    const clean = plain.replace(CONTROLS, (one) => (one === "\t" ? one : ""));
    if (clean) segments.push({ text: clean, ...now });
  };
  for (;;) {
    const match = SEQUENCE.exec(rest);
    if (!match) break;
    add(rest.slice(0, match.index));
    if (match[2] === "m") now = styled(now, match[1] || "0");
    rest = rest.slice(match.index + match[0].length);
  }
  add(rest);
  return { segments, style: now };
}

/** What is left of a line after its carriage returns: the last text that was written over it. */
export function overwritten(text: string): string {
  const parts = text.split("\r");
  if (parts.length === 1) return text;
  const shown = parts.findLast((part) => part.replace(SEQUENCE, "").trim() !== "");
  return shown ?? "";
}

/** Lines of a log as they grow. The last one may go on, and be written over. */
export class Screen {
  readonly lines: Line[] = [];
  private open = new Map<number | null, string>();
  private times = new Map<number | null, number | null | undefined>();
  private styles = new Map<number | null, Style>();
  private next = 0;

  constructor(private readonly most: number) {}

  /** Take a piece of one rank's output. `times`: when each of its lines came, the first being the
   * one that it goes on with. Returns whether lines were dropped at the top. */
  take(rank: number | null, data: string, times: readonly (number | null)[] = []): boolean {
    const begun = this.open.get(rank) ?? "";
    const lines = (begun + data).split("\n");
    const rest = lines.pop() ?? "";
    const came = (index: number) => (index || !begun ? times[index] : this.times.get(rank));
    for (const [index, line] of lines.entries())
      this.put(rank, line.endsWith("\r") ? line.slice(0, -1) : line, came(index));
    this.times.set(rank, came(lines.length));
    // A long bar that is drawn over and over needs no more than what it shows now.
    const cut = rest.lastIndexOf("\r");
    this.open.set(rank, cut > 0 && rest.length > cut + 1 ? rest.slice(cut) : rest);
    return this.bound();
  }

  /** A line of the page's own. */
  note(text: string): void {
    this.lines.push({ key: this.next++, rank: null, segments: [{ text }], note: true });
  }

  /** The lines that have not ended, as they are now. */
  unfinished(): Line[] {
    return [...this.open]
      .filter(([, text]) => text.trim() !== "")
      .map(([rank, text], index) => ({
        key: -1 - index,
        rank,
        segments: segmentsOf(overwritten(text), this.styles.get(rank)).segments,
        at: this.times.get(rank),
      }));
  }

  private put(rank: number | null, text: string, at: number | null | undefined): void {
    const { segments, style } = segmentsOf(overwritten(text), this.styles.get(rank));
    this.styles.set(rank, style);
    this.lines.push({ key: this.next++, rank, segments, at });
  }

  private bound(): boolean {
    const over = this.lines.length - this.most;
    if (over < this.most / 10) return false;
    this.lines.splice(0, over);
    return true;
  }
}
