/** One stream for all tabs of a browser: over HTTP/1.1 a browser has six connections to a host, and
 * each stream takes one. The tab that holds the lock reads, and hands on what it receives. */

import { follow, type Listener, type Sent } from "./stream";

const KEPT = 200;

type Message =
  | { kind: "joined"; who: string; after: number }
  | { kind: "recent"; who: string; recent: Sent[] }
  | { kind: "opened" }
  | { kind: "received"; sent: Sent }
  | { kind: "lost"; final: boolean };

const canShare = (): boolean =>
  typeof BroadcastChannel !== "undefined" && "locks" in navigator && navigator.locks !== undefined;

/** Follow a stream of numbered events with the other tabs, from behind the event `after` on, until
 * the answer is called. `address` gets the number of the newest event. */
export function followTogether(
  name: string,
  after: number,
  address: (after: number) => string,
  listener: Listener,
): () => void {
  if (!canShare()) return follow(() => address(after), listener);
  const channel = new BroadcastChannel(`corral-${name}`);
  const who = Math.random().toString(36).slice(2);
  const leaving = new AbortController();
  const recent: Sent[] = [];
  let newest = after;
  let isOpen = false;
  let leads = false;

  const post = (message: Message) => {
    if (!leaving.signal.aborted) channel.postMessage(message);
  };
  const take = (sent: Sent) => {
    const number = Number(sent.id);
    if (number <= newest) return;
    newest = number || newest;
    listener.received(sent);
  };
  const lost = (final: boolean) => {
    listener.lost(final);
    if (final) leave();
  };
  const leave = () => {
    if (leaving.signal.aborted) return;
    leaving.abort();
    channel.close();
  };
  const lead = () =>
    new Promise<void>((done) => {
      leads = true;
      const stop = follow(() => address(newest), {
        opened: () => {
          isOpen = true;
          post({ kind: "opened" });
          listener.opened();
        },
        received: (sent) => {
          recent.push(sent);
          if (recent.length > KEPT) recent.shift();
          post({ kind: "received", sent });
          take(sent);
        },
        lost: (final) => {
          isOpen = false;
          post({ kind: "lost", final });
          lost(final);
        },
      });
      leaving.signal.addEventListener("abort", () => {
        stop();
        done();
      });
    });

  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "joined") {
      if (!leads || !isOpen) return;
      const missed = recent.filter((sent) => Number(sent.id) > data.after);
      post({ kind: "recent", who: data.who, recent: missed });
    } else if (leads) return;
    else if (data.kind === "recent" && data.who === who) {
      listener.opened();
      for (const sent of data.recent) take(sent);
    } else if (data.kind === "opened") listener.opened();
    else if (data.kind === "received") take(data.sent);
    else if (data.kind === "lost") lost(data.final);
  };
  post({ kind: "joined", who, after });
  void navigator.locks
    .request(`corral-${name}`, { signal: leaving.signal }, lead)
    .catch(() => undefined); // it has left before its turn came
  return leave;
}

const HIDDEN_MS = 20_000;

/** Keep something open while the page is seen: closed some time after it is hidden, opened again
 * when it is seen. Until the answer is called. */
export function whileSeen(open: () => () => void): () => void {
  let close: (() => void) | undefined;
  let timer: number | undefined;
  const look = () => {
    window.clearTimeout(timer);
    if (!document.hidden) {
      close ??= open();
      return;
    }
    timer = window.setTimeout(() => {
      close?.();
      close = undefined;
    }, HIDDEN_MS);
  };
  look();
  document.addEventListener("visibilitychange", look);
  return () => {
    window.clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
    close?.();
  };
}

const SLOTS = 3; // with the stream of events and two for requests, they are the six

/** Try to take one of the browser's few places for a stream. Undefined: all are taken. The answer
 * gives the place back. */
export async function takeSlot(): Promise<(() => void) | undefined> {
  if (!canShare()) return () => undefined;
  for (let slot = 0; slot < SLOTS; slot++) {
    const release = await tryLock(`corral-stream-${slot}`);
    if (release) return release;
  }
  return undefined;
}

function tryLock(name: string): Promise<(() => void) | undefined> {
  return new Promise((answer) => {
    void navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      if (!lock) {
        answer(undefined);
        return undefined;
      }
      return new Promise<void>((release) => answer(release));
    });
  });
}
