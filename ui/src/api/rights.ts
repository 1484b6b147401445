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

/** Why they may not change the job. */
export function noChange(who: Who | undefined, job: Owned): string | undefined {
  if (!who || OPERATORS.has(who.role)) return undefined;
  if (who.role === "viewer") return `You are ${of(who)}: viewers may not change jobs.`;
  if (job.owner === who.user || who.operates.includes(job.queue)) return undefined;
  return `This job belongs to ${job.owner}: only ${job.owner} or an operator may change it.`;
}

export const useWho = (): SessionView | undefined => useQuery(session).data;
