/** Server-sent events by fetch: an EventSource cannot send the page's secret. */

import { pageHeaders } from "./secret";

/** One event of a stream. `kind` is empty for a plain message. */
export interface Sent {
  id: string;
  kind: string;
  data: string;
}

export interface Listener {
  opened(): void;
  received(sent: Sent): void;
  /** The stream is lost. `final`: the head has refused it, and it is not tried again. */
  lost(final: boolean): void;
}

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;
const SILENT_MS = 30_000; // the head sends a heartbeat each 10 s
const TOO_MANY = 429;

/** Splits the text of a stream into events, in pieces of any size. */
export class Parser {
  private rest = "";
  private data: string[] = [];
  private kind = "";
  private id = "";

  feed(piece: string): Sent[] {
    const sent: Sent[] = [];
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.take(line.endsWith("\r") ? line.slice(0, -1) : line, sent);
    return sent;
  }

  private take(line: string, sent: Sent[]): void {
    if (line === "") {
      if (this.data.length) {
        sent.push({ id: this.id, kind: this.kind, data: this.data.join("\n") });
      }
      this.data = [];
      this.kind = "";
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "event") this.kind = value;
    else if (field === "id") this.id = value;
  }
}

/** The time before the next try, after this many tries that have failed. */
export function waitMs(failures: number): number {
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures);
}

/** Whether an answer is worth another try: the head is not ready, or too much was asked of it. */
export const isPassing = (status: number): boolean => status >= 500 || status === TOO_MANY;

/** Follow a stream until the answer is called. A lost one goes on behind the last event.
 * `address` is asked before each connection. */
export function follow(address: () => string, listener: Listener): () => void {
  let over = false;
  let failures = 0;
  let lastId = "";
  let timer: ReturnType<typeof setTimeout> | undefined;
  let connection = new AbortController();

  const receive = async (body: ReadableStream<Uint8Array>): Promise<void> => {
    const parser = new Parser();
    const text = new TextDecoder();
    const reader = body.getReader();
    const here = connection;
    const silent = () => here.abort();
    let watch = setTimeout(silent, SILENT_MS);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done || over) return;
        clearTimeout(watch);
        watch = setTimeout(silent, SILENT_MS);
        failures = 0;
        for (const sent of parser.feed(text.decode(value, { stream: true }))) {
          lastId = sent.id || lastId;
          if (!over) listener.received(sent);
        }
      }
    } finally {
      clearTimeout(watch);
    }
  };

  const connect = async (): Promise<void> => {
    connection = new AbortController();
    const headers: Record<string, string> = { Accept: "text/event-stream", ...pageHeaders() };
    if (lastId) headers["Last-Event-ID"] = lastId;
    let final = false;
    try {
      const answer = await fetch(address(), {
        headers,
        credentials: "same-origin",
        cache: "no-store",
        signal: connection.signal,
      });
      final = !answer.ok && !isPassing(answer.status);
      if (answer.ok && answer.body && !over) {
        listener.opened();
        await receive(answer.body);
      } else {
        await answer.body?.cancel();
      }
    } catch {
      // the head went away: it is tried again below
    }
    if (over) return;
    listener.lost(final);
    if (final || over) return;
    timer = setTimeout(() => void connect(), waitMs(failures++));
  };

  void connect();
  return () => {
    over = true;
    clearTimeout(timer);
    connection.abort();
  };
}
