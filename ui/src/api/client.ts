/** The cache of answers. A refusal for lack of a session, whatever asked, ends in the log-in. */

import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { Refused } from "./http";
import { again, session } from "./queries";

export const isSignedOut = (error: unknown): boolean =>
  error instanceof Refused && error.status === 401;

/** Ask the head anew who is logged in: its 401 brings the log-in in place of the page. */
export function checkSession(client: QueryClient, error: unknown): void {
  if (isSignedOut(error)) void client.invalidateQueries({ queryKey: session.queryKey });
}

export function makeClient(): QueryClient {
  const client: QueryClient = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, query) => {
        if (query.queryKey[0] !== session.queryKey[0]) checkSession(client, error);
      },
    }),
    mutationCache: new MutationCache({ onError: (error) => checkSession(client, error) }),
    defaultOptions: { queries: { retry: again, staleTime: 1000, refetchOnWindowFocus: true } },
  });
  return client;
}
