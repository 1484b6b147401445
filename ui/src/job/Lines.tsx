/** Lines of a log, drawn in blocks: what does not change is not drawn again. */

import { memo } from "react";
import { clock, full } from "../parts/say";
import type { Line, Segment } from "./terminal";

const BLOCK = 200;

interface Props {
  lines: Line[];
  /** Each line has its rank before it. */
  ranked: boolean;
  /** Each line has the time before it at which it reached the head. */
  timed: boolean;
  marked?: number | undefined;
}

export function Lines({ lines, ranked, timed, marked }: Props) {
  const blocks: Line[][] = [];
  for (let at = 0; at < lines.length; at += BLOCK) blocks.push(lines.slice(at, at + BLOCK));
  return blocks.map((block) => (
    <Block key={block[0]?.key} lines={block} ranked={ranked} timed={timed} marked={marked} />
  ));
}

const Block = memo(
  function Block({ lines, ranked, timed, marked }: Props) {
    return lines.map((line) => (
      <OneLine
        key={line.key}
        line={line}
        ranked={ranked}
        timed={timed}
        isMarked={line.key === marked}
      />
    ));
  },
  (old, now) =>
    old.ranked === now.ranked &&
    old.timed === now.timed &&
    old.marked === now.marked &&
    old.lines.length === now.lines.length &&
    old.lines.every((line, at) => line === now.lines[at]),
);

interface OneLineProps {
  line: Line;
  ranked: boolean;
  timed: boolean;
  isMarked: boolean;
}

function OneLine({ line, ranked, timed, isMarked }: OneLineProps) {
  const text = (
    <>
      {timed && !line.note && <Time at={line.at} />}
      {ranked && line.rank !== null && <span className="rank">[{line.rank}] </span>}
      {line.segments.map((one, at) =>
        one.ink === undefined && !one.bold ? (
          one.text
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: segments have no other name
          <span key={at} className={classOf(one)}>
            {one.text}
          </span>
        ),
      )}
      {"\n"}
    </>
  );
  if (isMarked) return <mark>{text}</mark>;
  return line.note ? <span className="note">{text}</span> : text;
}

function Time({ at }: { at: number | null | undefined }) {
  if (at === null || at === undefined) return <span className="rank">{"–".padEnd(9)}</span>;
  return (
    <time className="rank" dateTime={new Date(at * 1000).toISOString()} title={full(at)}>
      {clock(at)}{" "}
    </time>
  );
}

function classOf({ ink, bold }: Segment): string {
  return `${ink === undefined ? "" : `ink-${ink}`}${bold ? " strong" : ""}`;
}
