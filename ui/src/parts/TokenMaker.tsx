/** A token for the command line, of who is logged in here: told once. */

import { useMutation } from "@tanstack/react-query";
import { useRef } from "react";
import { post } from "../api/http";
import type { TokenMade } from "../api/types";
import { Wrong } from "./basic";
import { Icon } from "./Icon";
import { full } from "./say";

const SAYS = "The token has your rights. It expires with this session at the latest.";

export function TokenMaker() {
  const dialog = useRef<HTMLDialogElement>(null);
  const made = useMutation({ mutationFn: () => post<TokenMade>("/v1/tokens", {}) });
  return (
    <>
      <button
        type="button"
        className="plain icon"
        title="Token for the command line"
        aria-label="Token for the command line"
        onClick={() => dialog.current?.showModal()}
      >
        <Icon name="key" />
      </button>
      <dialog
        ref={dialog}
        aria-label="A token for the command line"
        onClose={() => made.reset()} // it is told once
      >
        <h2>A token for the command line</h2>
        <p className="soft">{SAYS}</p>
        {made.data && (
          <>
            <pre className="typed">
              {`export CORRAL_URL=${location.origin}\nexport CORRAL_TOKEN=${made.data.token}`}
            </pre>
            {made.data.expires_at !== null && (
              <p>It is valid until {full(made.data.expires_at)}.</p>
            )}
          </>
        )}
        <Wrong error={made.error} />
        <div className="actions">
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
          {!made.data && (
            <button type="button" className="main" onClick={() => made.mutate()}>
              Create token
            </button>
          )}
        </div>
      </dialog>
    </>
  );
}
