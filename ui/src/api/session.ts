/** Logging in and out: a token, or a link's, is exchanged for a cookie that no script reads and a
 * second secret that pages of this head alone can read. */

import { get, post, Refused, remove } from "./http";
import { dropPageSecret, keepPageSecret, pageSecret } from "./secret";
import type { SessionOpened, SessionView } from "./types";

const LINK = /^#login=([\w.~+/=-]{16,512})$/;
const BACK = /^#session=([\w-]{16,128})$/;

/** The secret of a link that logs in once, if the address holds one. */
export function linkIn(hash: string): string | undefined {
  return LINK.exec(hash)?.[1];
}

/** The page's secret of a session that the provider's log-in has just opened. */
export function openedIn(hash: string): string | undefined {
  return BACK.exec(hash)?.[1];
}

/** Whether there may be a session: one was begun in this browser, and not ended. */
export const mayBeIn = (): boolean => pageSecret() !== null;

/** Who is logged in. The head is asked only where somebody has logged in with this browser: it
 * would answer a first visit with a 401, which every browser writes down as an error. */
export async function whoIsIn(): Promise<SessionView> {
  if (!mayBeIn()) throw new Refused(401, "unauthorised", "you are not logged in", "log in");
  try {
    return await get<SessionView>("/v1/session");
  } catch (wrong) {
    if (wrong instanceof Refused && wrong.status === 401) dropPageSecret();
    throw wrong;
  }
}

/** Keep the secret of a session that was opened by the provider. One that does not go with the
 * cookie was put into a link by somebody, and replaces nothing. */
export async function arrive(secret: string): Promise<void> {
  await get<SessionView>("/v1/session", undefined, { page: secret });
  keepPageSecret(secret);
}

/** The question before a link logs somebody in. None: the same user is logged in. */
export function questionOf(now: string | undefined, next: string): string | undefined {
  if (now === next) return undefined;
  if (now === undefined) return `Log in as ${next}?`;
  return `Log in as ${next}? You are now ${now}.`;
}

/** Log in by a link, which logs nobody in silently: it may be a link of somebody else. */
export async function followLink(secret: string): Promise<void> {
  const next = await get<SessionView>("/v1/session", undefined, { token: secret });
  const now = await whoIsIn().catch(() => undefined);
  const question = questionOf(now?.user, next.user);
  if (question && !window.confirm(question)) return;
  await logIn(secret);
}

export async function logIn(secret: string): Promise<void> {
  const opened = await post<SessionOpened>("/v1/session", undefined, { token: secret });
  keepPageSecret(opened.page_secret);
}

export async function logOut(): Promise<void> {
  try {
    await remove("/v1/session");
  } finally {
    dropPageSecret();
  }
}
