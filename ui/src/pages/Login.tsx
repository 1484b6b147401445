import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { isSignedOut } from "../api/client";
import { get, Refused, withQuery } from "../api/http";
import { logIn } from "../api/session";
import type { SignOnView } from "../api/types";
import { Wrong } from "../parts/basic";
import { Icon } from "../parts/Icon";

const HOW =
  "for a token, run corral token create; for a log-in link, run corral ui; or ask an admin for a token";

/** The error in words of a browser: the head's hint is for programs. */
function inBrowser(error: unknown): unknown {
  if (!isSignedOut(error) || !(error instanceof Refused)) return error;
  return new Refused(error.status, error.code, error.message, HOW);
}

/** A token is shown once; what the browser keeps is a session's cookie. `ended`: there was a
 * session before; the address stays, so that its page comes back. */
export function Login({ ended }: { ended: boolean }) {
  const client = useQueryClient();
  const field = useRef<HTMLInputElement>(null);
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    field.current?.focus();
    document.title = "Log in · Corral";
  }, []);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(undefined);
    try {
      await logIn(token.trim());
      await client.resetQueries(); // nothing of who was here before stays
    } catch (wrong) {
      setError(inBrowser(wrong));
      field.current?.select();
    }
  };
  return (
    <main className="login">
      <h1 className="brand">
        <Icon name="brand" size={22} /> Corral
      </h1>
      {ended && (
        <p className="notice" role="status">
          Your session has ended. Log in to come back to this page.
        </p>
      )}
      <Provider />
      <form className="card" onSubmit={submit}>
        <label className="field">
          <span>Token</span>
          <input
            ref={field}
            type="password"
            name="token"
            autoComplete="current-password"
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <button type="submit" className="main">
          Log in
        </button>
        <Wrong error={error} />
      </form>
      <p className="soft">
        If you have no token, run <code>corral ui</code>: it prints a link that logs this browser
        in.
      </p>
    </main>
  );
}

/** The way in by the organisation's own log-in, where the head knows one. */
function Provider() {
  const { data } = useQuery({ queryKey: ["sign-on"], queryFn: () => get<SignOnView>("/v1/oidc") });
  if (!data?.provider) return null;
  const to = location.pathname + location.search;
  return (
    <>
      <a className="button main" href={withQuery("/v1/oidc/start", { to })}>
        Log in with {data.provider}
      </a>
      <p className="soft">or with a token of this cluster:</p>
    </>
  );
}
