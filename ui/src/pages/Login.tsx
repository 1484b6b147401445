import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { session } from "../api/queries";
import { logIn } from "../api/session";
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
