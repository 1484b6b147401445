/** What the head tells as it happens: events make what is shown be asked for anew. */

import type { Query, QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { checkSession } from "./client";
import { getDated } from "./http";
import { followTogether, whileSeen } from "./together";
import type { EventView } from "./types";

const KEPT = 200;
const PAUSE_MS = 1000;
const AGAIN_MS = 3000;
const SLACK_SECONDS = 5; // between an event's time and its commit, and for a header in whole seconds

type Link = "connecting" | "live" | "away";
interface Heard {
  link: Link;
  events: readonly EventView[];
  /** Since when the head does not answer: what is shown is as of then. Seconds since 1970. */
  awaySince: number | undefined;
}

let heard: Heard = { link: "connecting", events: [], awaySince: undefined };
const listeners = new Set<() => void>();

function say(change: Partial<Heard>): void {
  heard = { ...heard, ...change };
  for (const listener of listeners) listener();
}

function away(): void {
  say({ link: "away", awaySince: heard.awaySince ?? Date.now() / 1000 });
}

export function useHeard(): Heard {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => heard,
  );
}

/** The keys of what an event may have changed. */
export function touched(event: EventView): string[] {
  const keys = ["status"];
  if (event.job) keys.push("jobs", "queues", `job:${event.job}`);
  if (event.node) keys.push(`node:${event.node}`);
  if (!event.job && !event.node) keys.push("queues");
  return keys;
}

/** The events that a page opened this long ago may lack: it may have asked for its data before them,
 * and the stream begins behind them. `at`: the head's time, NaN when it is not known. */
export function sinceOpened(
  events: readonly EventView[],
  at: number,
  openSeconds: number,
): EventView[] {
  const since = at - openSeconds - SLACK_SECONDS;
  return events.filter((event) => Number.isNaN(since) || event.at >= since);
}

/** Ask anew for what is shown under the key. A first answer that is on its way may be older than
 * the change, and invalidating such a query does not ask again: it is asked for after it. */
async function renewKey(client: QueryClient, key: string): Promise<void> {
  const queryKey = [key];
  const isFirst = (query: Query) =>
    query.state.data === undefined && query.state.fetchStatus !== "idle";
  const first = new Set(client.getQueryCache().findAll({ queryKey, predicate: isFirst }));
  await client.invalidateQueries({ queryKey });
  if (first.size === 0) return;
  await client.invalidateQueries({ queryKey, predicate: (query) => first.has(query) });
}

/** Asks for what has changed at most once in a while, and never twice at a time. */
function renewer(client: QueryClient): (keys: string[]) => void {
  const waiting = new Set<string>();
  let timer: number | undefined;
  const go = async (): Promise<void> => {
    const keys = [...waiting];
    waiting.clear();
    const began = performance.now();
    await Promise.all(keys.map((key) => renewKey(client, key)));
    const took = performance.now() - began;
    timer = window.setTimeout(
      () => {
        timer = undefined;
        if (waiting.size) void go();
      },
      Math.max(PAUSE_MS, 4 * took),
    );
  };
  return (keys) => {
    for (const key of keys) waiting.add(key);
    if (timer === undefined) {
      timer = 0;
      void go();
    }
  };
}

/** Listen until the answer is called, while the page is seen. */
export const listen = (client: QueryClient): (() => void) => whileSeen(() => hear(client));

/** The stream begins at the newest event; a lost one goes on. */
function hear(client: QueryClient): () => void {
  let stop: (() => void) | undefined;
  let over = false;
  const renew = renewer(client);
  const again = () => {
    if (!over) window.setTimeout(open, AGAIN_MS);
  };
  const open = async (): Promise<void> => {
    if (over) return;
    let after = 0;
    try {
      const recent = await getDated<{ events: EventView[] }>("/v1/events", { newest: KEPT });
      if (over) return;
      const events = recent.data.events.reverse();
      say({ events });
      after = events[0]?.number ?? 0;
      const missed = sinceOpened(events, recent.at, performance.now() / 1000);
      if (missed.length) renew(missed.flatMap(touched));
    } catch (wrong) {
      checkSession(client, wrong);
      away();
      again();
      return;
    }
    stop = followTogether("events", after, (newest) => `/v1/events?follow=1&after=${newest}`, {
      opened: () => {
        if (heard.link === "away") void client.invalidateQueries();
        say({ link: "live", awaySince: undefined });
      },
      received: (sent) => {
        if (sent.kind) return;
        const event = JSON.parse(sent.data) as EventView;
        say({ events: [event, ...heard.events].slice(0, KEPT) });
        renew(touched(event));
      },
      lost: (final) => {
        away();
        if (final) again();
      },
    });
  };
  void open();
  return () => {
    over = true;
    stop?.();
  };
}
