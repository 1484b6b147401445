import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get, withQuery } from "../api/http";
import { session } from "../api/queries";
import { logIn } from "../api/session";
import type { SignOn } from "../api/types";
import { Wrong } from "../parts/basic";
import { Icon } from "../parts/Icon";

/** A token is shown once; what the browser keeps is a session's cookie. */
export function Login() {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(undefined);
    try {
      await logIn(token.trim());
      await client.invalidateQueries({ queryKey: session.queryKey });
    } catch (wrong) {
      setError(wrong);
    }
  };
  return (
    <main className="login">
      <h1 className="brand">
        <Icon name="brand" size={22} /> Corral
      </h1>
      <Provider />
      <form className="card" onSubmit={submit}>
        <label className="field">
          <span>Token</span>
          <input
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
        Without a token at hand: <code>corral ui</code> prints a link that logs this browser in.
      </p>
    </main>
  );
}

/** The way in by the organisation's own log-in, where the head knows one. */
function Provider() {
  const { data } = useQuery({ queryKey: ["sign-on"], queryFn: () => get<SignOn>("/v1/oidc") });
  if (!data?.provider) return null;
  const to = location.pathname + location.search;
  return (
    <>
      <a className="button main" href={withQuery("/v1/oidc/start", { to })}>
        Log in with {data.provider}
      </a>
      <p className="soft">or by a token of this cluster:</p>
    </>
  );
}
