/** What the head tells as it happens: events make what is shown be asked for anew. */

import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { get } from "./http";
import { follow } from "./stream";
import type { Event } from "./types";

const KEPT = 200;
const PAUSE_MS = 1000;
const AGAIN_MS = 3000;

type Link = "connecting" | "live" | "away";
interface Heard {
  link: Link;
  events: readonly Event[];
}

let heard: Heard = { link: "connecting", events: [] };
const listeners = new Set<() => void>();

function say(change: Partial<Heard>): void {
  heard = { ...heard, ...change };
  for (const listener of listeners) listener();
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
export function touched(event: Event): string[] {
  const keys = ["status"];
  if (event.job) keys.push("jobs", "queues", `job:${event.job}`);
  if (event.node) keys.push(`node:${event.node}`);
  if (!event.job && !event.node) keys.push("queues");
  return keys;
}

/** Asks for what has changed at most once in a while, and never twice at a time. */
function renewer(client: QueryClient): (keys: string[]) => void {
  const waiting = new Set<string>();
  let timer: number | undefined;
  const go = async (): Promise<void> => {
    const keys = [...waiting];
    waiting.clear();
    const began = performance.now();
    await Promise.all(keys.map((key) => client.invalidateQueries({ queryKey: [key] })));
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

/** Listen until the answer is called. The stream begins at the newest event; a lost one goes on. */
export function listen(client: QueryClient): () => void {
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
      const recent = await get<{ events: Event[] }>("/v1/events", { newest: KEPT });
      if (over) return;
      say({ events: recent.events.reverse() });
      after = recent.events[0]?.number ?? 0;
    } catch {
      say({ link: "away" });
      again();
      return;
    }
    stop = follow(() => `/v1/events?follow=1&after=${after}`, {
      opened: () => {
        if (heard.link === "away") void client.invalidateQueries();
        say({ link: "live" });
      },
      received: (sent) => {
        if (sent.kind) return;
        const event = JSON.parse(sent.data) as Event;
        say({ events: [event, ...heard.events].slice(0, KEPT) });
        renew(touched(event));
      },
      lost: (final) => {
        say({ link: "away" });
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
