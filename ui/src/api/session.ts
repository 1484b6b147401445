/** Logging in and out: a token, or a link's, is exchanged for a cookie that no script reads. */

import { post, remove } from "./http";
import type { Session } from "./types";

const LINK = /^#login=([\w.~+/=-]{16,512})$/;

/** The secret of a link that logs in once, if the address holds one. */
export function linkIn(hash: string): string | undefined {
  return LINK.exec(hash)?.[1];
}

export const openLink = (secret: string): Promise<Session> =>
  post<Session>("/v1/session", undefined, secret);

export const logIn = openLink;
export const logOut = (): Promise<void> => remove("/v1/session");
