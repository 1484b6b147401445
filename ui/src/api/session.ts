/** Logging in and out: a token, or a link's, is exchanged for a cookie that no script reads. */

import { get, post, Refused, remove } from "./http";
import type { Session } from "./types";

const LINK = /^#login=([\w.~+/=-]{16,512})$/;
const HERE = "corral-session";

/** The secret of a link that logs in once, if the address holds one. */
export function linkIn(hash: string): string | undefined {
  return LINK.exec(hash)?.[1];
}

/** Whether there may be a session: one was begun in this browser, and not ended. */
export const mayBeIn = (): boolean => localStorage.getItem(HERE) !== null;

/** Who is logged in. The head is asked only where somebody has logged in with this browser: it
 * would answer a first visit with a 401, which every browser writes down as an error. */
export async function whoIsIn(): Promise<Session> {
  if (!mayBeIn()) throw new Refused(401, "unauthorised", "nobody is logged in", "log in");
  try {
    return await get<Session>("/v1/session");
  } catch (wrong) {
    if (wrong instanceof Refused && wrong.status === 401) localStorage.removeItem(HERE);
    throw wrong;
  }
}

/** From now on there may be a session: one was begun here, or is at the provider. */
export const setOut = (): void => localStorage.setItem(HERE, "1");

/** The question before a link logs somebody in. None: it is the same user, or nobody was. */
export function questionOf(now: string | undefined, next: string): string | undefined {
  if (now === undefined || now === next) return undefined;
  return `Log in as ${next}? You are now ${now}.`;
}

/** Log in by a link, which puts nobody silently in place of who is logged in. */
export async function followLink(secret: string): Promise<void> {
  if (mayBeIn()) {
    const next = await get<Session>("/v1/session", undefined, secret);
    const now = await whoIsIn().catch(() => undefined);
    const question = questionOf(now?.user, next.user);
    if (question && !window.confirm(question)) return;
  }
  await logIn(secret);
}

export async function logIn(secret: string): Promise<void> {
  await post<Session>("/v1/session", undefined, secret);
  setOut();
}

export async function logOut(): Promise<void> {
  localStorage.removeItem(HERE);
  await remove("/v1/session");
}
