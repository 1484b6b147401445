/** Why somebody may not do a thing, in words; undefined: they may. The head decides anyway. */

import { useQuery } from "@tanstack/react-query";
import { session } from "./queries";
import type { SessionView } from "./types";

type Who = Pick<SessionView, "user" | "role" | "operates">;
interface Owned {
  owner: string;
  queue: string;
}

const OPERATORS = new Set(["operator", "admin"]);

function of(who: Who): string {
  return `${who.user}, ${/^[aeio]/.test(who.role) ? "an" : "a"} ${who.role}`;
}

/** Why they may not submit. */
export function noSubmit(who: Who | undefined): string | undefined {
  if (who?.role !== "viewer") return undefined;
  return `You are ${of(who)}: viewers may not submit jobs.`;
}

/** Why they may not change nodes. */
export function noOperating(who: Who | undefined): string | undefined {
  if (!who || OPERATORS.has(who.role)) return undefined;
  return `You are ${of(who)}: only an operator may change nodes.`;
}

/** Why they may not change the job, or what else somebody owns in a queue. */
export function noChange(
  who: Who | undefined,
  one: Owned,
  kind: "job" | "service" = "job",
): string | undefined {
  if (!who || OPERATORS.has(who.role)) return undefined;
  if (who.role === "viewer") return `You are ${of(who)}: viewers may not change ${kind}s.`;
  if (one.owner === who.user || who.operates.includes(one.queue)) return undefined;
  return `This ${kind} belongs to ${one.owner}: only ${one.owner} or an operator may change it.`;
}

export const useWho = (): SessionView | undefined => useQuery(session).data;
