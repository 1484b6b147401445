/** Requests to the head, by the session's cookie and the page's secret. */

import { pageHeaders } from "./secret";

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | boolean | string[] | null | undefined>;

export function withQuery(path: string, query: Query = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) asked.append(name, String(one));
  }
  const text = asked.toString();
  return text ? `${path}?${text}` : path;
}

/** What is shown instead of the session: a token, or another secret of the page. */
interface Shown {
  token?: string;
  page?: string;
}

async function send(
  method: string,
  path: string,
  body?: unknown,
  shown: Shown = {},
): Promise<Response> {
  const headers: Record<string, string> = pageHeaders(shown.page);
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (shown.token) headers.Authorization = `Bearer ${shown.token}`;
  try {
    const text = body === undefined ? null : JSON.stringify(body);
    return await fetch(path, { method, headers, body: text, credentials: "same-origin" });
  } catch {
    throw new Refused(0, "unreachable", "the head does not answer", "run: corral status");
  }
}

async function read<T>(answer: Response): Promise<T> {
  if (answer.status === 204) return undefined as T;
  const found = await answer.json().catch(() => null);
  if (answer.ok) return found as T;
  const error = found?.error ?? { code: "error", message: answer.statusText, hint: "" };
  throw new Refused(answer.status, error.code, error.message, error.hint);
}

async function ask<T>(method: string, path: string, body?: unknown, shown?: Shown): Promise<T> {
  return read<T>(await send(method, path, body, shown));
}

/** An answer, and when it was given: seconds since 1970 by the head's clock, or NaN. */
export interface Dated<T> {
  data: T;
  at: number;
}

export async function getDated<T>(path: string, query?: Query): Promise<Dated<T>> {
  const answer = await send("GET", withQuery(path, query));
  const at = Date.parse(answer.headers.get("Date") ?? "") / 1000;
  return { data: await read<T>(answer), at };
}

/** A file of the head's, whole. */
export async function getFile(path: string, query?: Query): Promise<Blob> {
  const answer = await send("GET", withQuery(path, query));
  return answer.ok ? answer.blob() : read<Blob>(answer);
}

export const get = <T>(path: string, query?: Query, shown?: Shown): Promise<T> =>
  ask<T>("GET", withQuery(path, query), undefined, shown);
export const post = <T>(path: string, body?: unknown, shown?: Shown): Promise<T> =>
  ask<T>("POST", path, body, shown);
export const remove = (path: string): Promise<void> => ask<void>("DELETE", path);

export const part = encodeURIComponent;
