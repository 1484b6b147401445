import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { makeClient } from "./client";
import { Refused } from "./http";
import { session } from "./queries";

let secret: string | null = "x";

beforeEach(() => {
  secret = "x";
  vi.stubGlobal("localStorage", {
    getItem: () => secret,
    removeItem: () => {
      secret = null;
    },
  });
  vi.stubGlobal(
    "fetch",
    vi.fn(async () => new Response("{}", { status: 401 })),
  );
});
afterEach(() => vi.unstubAllGlobals());

test("a refusal for lack of a session asks anew who is logged in, and only such a one", async () => {
  const client = makeClient();
  client.setQueryData(session.queryKey, { user: "ann" } as never);
  const refused = (status: number) => () => Promise.reject(new Refused(status, "x", "no", ""));
  const fails = (key: string, status: number) =>
    client.fetchQuery({ queryKey: [key], queryFn: refused(status), retry: false }).catch(() => 0);

  await fails("status", 403);
  expect(client.getQueryState(session.queryKey)?.isInvalidated).toBe(false);
  await fails("status", 401);
  expect(client.getQueryState(session.queryKey)?.isInvalidated).toBe(true);
});
