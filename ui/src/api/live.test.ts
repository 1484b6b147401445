import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { listen, sinceOpened } from "./live";
import type { EventView } from "./types";

const KEY = "job:j1";
const done: EventView = {
  at: Date.parse("2026-01-01T00:00:10Z") / 1000,
  attempt: 1,
  job: "j1",
  kind: "finished",
  node: null,
  number: 7,
  text: "story is DONE",
};
let stopAll: (() => void)[] = [];

beforeEach(() => {
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("navigator", {}); // without locks: a tab alone
  vi.stubGlobal("document", { hidden: false, addEventListener() {}, removeEventListener() {} });
  vi.stubGlobal("localStorage", { getItem: () => null });
  stopAll = [];
});

afterEach(() => {
  for (const stop of stopAll) stop();
  vi.unstubAllGlobals();
});

/** A head with these recent events. The answer sends an event down the stream. */
function head(events: EventView[]): (event: EventView) => void {
  let stream: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      stream = controller;
    },
  });
  const headers = { Date: "Thu, 01 Jan 2026 00:00:11 GMT" };
  vi.stubGlobal("fetch", async (path: string) =>
    path.includes("follow=1")
      ? new Response(body)
      : new Response(JSON.stringify({ events }), { headers }),
  );
  return (event) =>
    stream.enqueue(new TextEncoder().encode(`id: 7\ndata: ${JSON.stringify(event)}\n\n`));
}

/** Show a job's events on a page; each call of `answers` is one request of them. */
function show(answers: () => Promise<string>): { client: QueryClient; shown: () => unknown } {
  const client = new QueryClient();
  const observer = new QueryObserver(client, { queryKey: [KEY, "events"], queryFn: answers });
  stopAll.push(observer.subscribe(() => undefined));
  return { client, shown: () => observer.getCurrentResult().data };
}

test("what happened between a page's request and the stream's begin is shown", async () => {
  const answers = ["before", "after"];
  const { client, shown } = show(async () => answers.shift() ?? "too many");
  await vi.waitFor(() => expect(shown()).toBe("before"));
  head([done]);
  stopAll.push(listen(client));
  await vi.waitFor(() => expect(shown()).toBe("after"));
});

test("an event that comes before a page's first answer makes it ask again", async () => {
  const arrive: ((answer: string) => void)[] = [];
  const { client, shown } = show(() => new Promise<string>((resolve) => arrive.push(resolve)));
  const send = head([]);
  stopAll.push(listen(client));
  send(done);
  await vi.waitFor(() => expect(client.getQueryState([KEY, "events"])?.isInvalidated).toBe(true));
  arrive[0]?.("before");
  await vi.waitFor(() => expect(arrive).toHaveLength(2));
  arrive[1]?.("after");
  await vi.waitFor(() => expect(shown()).toBe("after"));
});

test("events of before the page was opened make nothing be asked for", () => {
  expect(sinceOpened([done], done.at + 100, 2)).toEqual([]);
  expect(sinceOpened([done], done.at + 100, 99)).toEqual([done]);
  expect(sinceOpened([done], Number.NaN, 2)).toEqual([done]);
});
