/** The second secret of a session, beside the cookie. Pages of this head alone can read it: storage
 * is kept apart by origin, port included, where a cookie is sent to every port of a host. */

const HERE = "corral-session";

export const pageSecret = (): string | null => localStorage.getItem(HERE);
export const keepPageSecret = (secret: string): void => localStorage.setItem(HERE, secret);
export const dropPageSecret = (): void => localStorage.removeItem(HERE);

/** Headers of each request that the session's cookie lets in. */
export function pageHeaders(secret = pageSecret()): Record<string, string> {
  return secret === null ? {} : { "Corral-Page": secret };
}
