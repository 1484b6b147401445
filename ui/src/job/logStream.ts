/** A job's log as it grows: streamed where the browser has a place for it, else asked for again. */

import { part, withQuery } from "../api/http";
import { follow } from "../api/stream";
import { takeSlot, whileSeen } from "../api/together";

/** A piece of one rank's log, or at the end the state that the job ended in. */
export interface Piece {
  rank: number | null;
  attempt: number | null;
  data: string;
  end: string | null;
  times: (number | null)[];
}

export interface LogAsked {
  job: string;
  rank: string;
  /** Undefined: the newest attempt, and all that follow it. */
  attempt: number | undefined;
  /** Where to begin, as ids of the stream: "1:0:4711". */
  places: string[];
  tail: number;
  /** Whether lines come with their times. */
  times: boolean;
}

interface Takes {
  piece: (piece: Piece) => void;
  link: (isThere: boolean) => void;
  end: () => void;
}

const POLL_MS = 2000;
const FINAL = new Set(["DONE", "FAILED", "CANCELLED"]);

/** Follow a log until the answer is called, while the page is seen. */
export function followLog(asked: LogAsked, takes: Takes): () => void {
  const places = new Map<string, string>();
  const seen = (id: string) => {
    const cut = id.lastIndexOf(":");
    if (cut > 0) places.set(id.slice(0, cut), id.slice(cut + 1));
  };
  for (const place of asked.places) seen(place);
  let isOver = false;
  const address = (follows: boolean) => {
    const after = [...places].map(([key, place]) => `${key}:${place}`).join(",");
    const from = after ? { after } : { tail: asked.tail };
    const { rank, attempt } = asked;
    const goesOn = follows && attempt === undefined ? 1 : 0;
    return withQuery(`/v1/jobs/${part(asked.job)}/logs`, {
      follow: goesOn,
      rank,
      attempt,
      times: asked.times ? 1 : undefined,
      ...from,
    });
  };
  /** One connection. `done` is called when a look is over. */
  const read = (follows: boolean, done: () => void) => {
    const stop = follow(() => address(follows), {
      opened: () => takes.link(true),
      received: (sent) => {
        if (sent.kind) return;
        const piece = JSON.parse(sent.data) as Piece;
        seen(sent.id);
        if (piece.end === null) {
          takes.piece(piece);
          return;
        }
        if (FINAL.has(piece.end) || asked.attempt !== undefined) {
          isOver = true;
          takes.end();
        }
        stop();
        done();
      },
      lost: () => takes.link(false),
    });
    return stop;
  };
  return whileSeen(() => {
    let close = () => {};
    let timer: number | undefined;
    let left = false;
    const look = async (): Promise<void> => {
      if (isOver || left) return;
      const release = await takeSlot();
      if (left) {
        release?.();
        return;
      }
      const stop = read(release !== undefined, () => {
        release?.();
        if (!left) timer = window.setTimeout(() => void look(), POLL_MS);
      });
      close = () => {
        stop();
        release?.();
      };
    };
    void look();
    return () => {
      left = true;
      window.clearTimeout(timer);
      close();
    };
  });
}
