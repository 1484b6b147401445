import { expect, test, vi } from "vitest";

/** Locks as a browser has them, for one name at a time. */
function locks() {
  const held = new Map<string, Promise<unknown>>();
  return {
    async request(
      name: string,
      how: { signal?: AbortSignal; ifAvailable?: boolean },
      work: (lock: object | null) => unknown,
    ) {
      if (how.ifAvailable && held.has(name)) return work(null);
      while (held.has(name)) await held.get(name);
      if (how.signal?.aborted) throw new Error("aborted");
      const run = Promise.resolve(work({}));
      held.set(name, run);
      await run;
      held.delete(name);
      return undefined;
    },
  };
}

vi.stubGlobal("navigator", { locks: locks() });
const streams: { address: string; listener: import("./stream").Listener; open: boolean }[] = [];
vi.mock("./stream", () => ({
  follow: (address: () => string, listener: import("./stream").Listener) => {
    const one = { address: address(), listener, open: true };
    streams.push(one);
    return () => {
      one.open = false;
    };
  },
}));
const { followTogether, takeSlot } = await import("./together");

const soon = () => new Promise((done) => setTimeout(done, 20));

function tab(after: number) {
  const received: string[] = [];
  const said: string[] = [];
  const stop = followTogether("events", after, (newest) => `/v1/events?after=${newest}`, {
    opened: () => said.push("opened"),
    received: (sent) => received.push(sent.id),
    lost: (final) => said.push(final ? "refused" : "lost"),
  });
  return { received, said, stop };
}

test("tabs share one stream, a late one misses nothing, and another takes it over", async () => {
  const first = tab(3);
  await soon();
  streams[0]?.listener.opened();
  streams[0]?.listener.received({ id: "4", kind: "", data: "{}" });
  streams[0]?.listener.received({ id: "5", kind: "", data: "{}" });
  const second = tab(4);
  await soon();
  expect(streams.length).toBe(1);
  expect(first.received).toEqual(["4", "5"]);
  expect(second.received).toEqual(["5"]);
  expect(second.said).toEqual(["opened"]);
  streams[0]?.listener.received({ id: "6", kind: "", data: "{}" });
  await soon();
  expect(second.received).toEqual(["5", "6"]);
  first.stop();
  await soon();
  expect(streams.map((one) => one.open)).toEqual([false, true]);
  expect(streams[1]?.address).toBe("/v1/events?after=6");
  streams[1]?.listener.received({ id: "7", kind: "", data: "{}" });
  expect(second.received).toEqual(["5", "6", "7"]);
  streams[1]?.listener.lost(true);
  expect(second.said.at(-1)).toBe("refused");
  await soon();
  expect(streams[1]?.open).toBe(false);
});

test("a browser has three places for streams", async () => {
  const places = [await takeSlot(), await takeSlot(), await takeSlot()];
  expect(places.every(Boolean)).toBe(true);
  expect(await takeSlot()).toBeUndefined();
  places[1]?.();
  await soon();
  expect(await takeSlot()).toBeDefined();
});
