import { afterEach, expect, test, vi } from "vitest";
import { follow, isPassing, Parser, type Sent, waitMs } from "./stream";

const store = new Map<string, string>([["corral-session", "the-secret"]]);
vi.stubGlobal("localStorage", { getItem: (name: string) => store.get(name) ?? null });

afterEach(() => vi.useRealTimers());

const body = (...pieces: string[]): ReadableStream<Uint8Array> =>
  new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
      controller.close();
    },
  });

test("events come out whole however the text is cut", () => {
  const text = ": beat\n\nid: 7\ndata: a\ndata: b\n\nevent: end\r\ndata:c\r\n\r\n";
  const whole = new Parser().feed(text);
  expect(whole).toEqual([
    { id: "7", kind: "", data: "a\nb" },
    { id: "7", kind: "end", data: "c" },
  ]);
  const parser = new Parser();
  expect([...text].flatMap((letter) => parser.feed(letter))).toEqual(whole);
});

test("waits grow and are bounded, and refusals are not tried again", () => {
  expect([0, 1, 2, 9].map(waitMs)).toEqual([1000, 2000, 4000, 15_000]);
  expect([200, 401, 403, 404, 429, 500, 503].filter(isPassing)).toEqual([429, 500, 503]);
});

test("each connection sends the secret, and goes on behind the last event", async () => {
  vi.useFakeTimers();
  const answers = [
    new Response(body("id: 3\nda", "ta: one\n\n")),
    new Response(null, { status: 503 }),
    new Response(body("id: 4\ndata: two\n\n")),
    new Response(null, { status: 401 }),
  ];
  const asked: Record<string, string>[] = [];
  vi.stubGlobal("fetch", async (_: string, how: { headers: Record<string, string> }) => {
    asked.push(how.headers);
    return answers.shift();
  });
  const received: Sent[] = [];
  const lost: boolean[] = [];
  let opened = 0;
  follow(() => "/v1/events?follow=1", {
    opened: () => opened++,
    received: (sent) => received.push(sent),
    lost: (final) => lost.push(final),
  });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(received.map((sent) => sent.data)).toEqual(["one", "two"]);
  expect(asked.map((one) => one["Corral-Page"])).toEqual(Array(4).fill("the-secret"));
  expect(asked.map((one) => one["Last-Event-ID"])).toEqual([undefined, "3", "3", "4"]);
  expect(opened).toBe(2);
  expect(lost).toEqual([false, false, false, true]);
});

test("nothing is heard after it is stopped", async () => {
  vi.stubGlobal("fetch", async () => new Response(body("data: one\n\n")));
  const received: Sent[] = [];
  const nothing = () => undefined;
  const stop = follow(() => "/", {
    opened: nothing,
    received: (sent) => received.push(sent),
    lost: nothing,
  });
  stop();
  await new Promise((done) => setTimeout(done, 20));
  expect(received).toEqual([]);
});
