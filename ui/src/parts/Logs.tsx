/** What the ranks print, as they print it. Only the last part is kept here; all of it is `corral logs`. */

import { useEffect, useRef, useState } from "react";
import { part, withQuery } from "../api/http";
import { follow } from "../api/stream";
import type { JobDetail } from "../api/types";
import { Card } from "./basic";
import { marker } from "./lines";

/** A piece of one rank's log, or at the end the state that the job ended in. */
interface Piece {
  rank: number | null;
  data: string;
  end: string | null;
}

const TAIL_LINES = 1000;
const KEPT_CHARACTERS = 400_000;
const DRAW_MS = 100;
const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[ -/]*[@-~]`, "g");

/** The end of a text, from the beginning of a line. */
export function lastPart(text: string, most: number): string {
  if (text.length <= most) return text;
  const cut = text.slice(text.length - most);
  return cut.slice(cut.indexOf("\n") + 1);
}

export function Logs({ job }: { job: JobDetail }) {
  const [rank, setRank] = useState("");
  const [text, setText] = useState("");
  const [end, setEnd] = useState<string>();
  const [lost, setLost] = useState(false);
  const [follows, setFollows] = useState(true);
  const box = useRef<HTMLPreElement>(null);
  const id = job.id;
  const ranks = job.attempts.at(-1)?.seats.length ?? 0;
  const gpus = job.attempts.at(-1)?.seats.reduce((sum, seat) => sum + seat.gpus.length, 0) ?? 0;
  const most = job.per === "gpu" ? Math.max(gpus, ranks) : ranks;
  const mixed = most > 1 && rank === "";
  useEffect(() => {
    let kept = "";
    const lines = marker();
    let timer: number | undefined;
    setText("");
    setEnd(undefined);
    const draw = () => {
      timer = undefined;
      setText(kept);
    };
    const places = new Map<string, string>();
    const address = () => {
      const after = [...places].map(([key, place]) => `${key}:${place}`).join(",");
      const from = after ? { after } : { tail: TAIL_LINES };
      return withQuery(`/v1/jobs/${part(id)}/logs`, { follow: 1, rank, ...from });
    };
    const stop = follow(address, {
      opened: () => setLost(false),
      received: (sent) => {
        if (sent.kind) return;
        const piece = JSON.parse(sent.data) as Piece;
        const cut = sent.id.lastIndexOf(":");
        if (cut > 0) places.set(sent.id.slice(0, cut), sent.id.slice(cut + 1));
        const said = piece.data.replace(ESCAPES, "");
        const more = mixed ? lines.take(piece.rank, said) + (piece.end ? lines.rest() : "") : said;
        kept = lastPart(kept + more, KEPT_CHARACTERS);
        timer ??= window.setTimeout(draw, DRAW_MS);
        if (piece.end) {
          setEnd(piece.end);
          stop();
        }
      },
      lost: () => setLost(true),
    });
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [id, rank, mixed]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new text is what is scrolled to
  useEffect(() => {
    const here = box.current;
    if (follows && here) here.scrollTop = here.scrollHeight;
  }, [text, follows]);
  const said = lost ? "not to be had now" : end ? "complete" : "live";
  return (
    <Card
      title="Logs"
      bare
      aside={
        <>
          <span className={lost ? "link away" : end ? "link connecting" : "link"}>{said}</span>
          {most > 1 && (
            <select
              aria-label="Rank"
              value={rank}
              onChange={(event) => setRank(event.target.value)}
            >
              <option value="">Every rank</option>
              {Array.from({ length: most }, (_, one) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: a rank is its number
                <option key={one} value={one}>
                  Rank {one}
                </option>
              ))}
            </select>
          )}
          <button type="button" onClick={() => setFollows(!follows)} aria-pressed={follows}>
            {follows ? "Stay here" : "Follow"}
          </button>
        </>
      }
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard */}
      <pre className="logs" ref={box} tabIndex={0} role="log" aria-label="Logs">
        {text || (end ? "It has printed nothing." : "Nothing yet.")}
      </pre>
    </Card>
  );
}
