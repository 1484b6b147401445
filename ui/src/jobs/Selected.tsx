/** Jobs that are ticked, and one request that changes all of them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { post } from "../api/http";
import { FINAL } from "../api/queries";
import { noChange, useWho } from "../api/rights";
import type { JobsChanged, SessionView } from "../api/types";
import { MOST_COMPARED } from "../job/curves";
import { Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { count, plural } from "../parts/say";
import { jobsOf, type Row } from "./rows";

const CHANGES: [string, string, string][] = [
  ["suspend", "Suspend", "The jobs save and stop. You can resume them later."],
  ["resume", "Resume", "The jobs start as soon as enough resources are free."],
  ["cancel", "Cancel", "The jobs are stopped and do not start again."],
];

interface Props {
  names: ReadonlySet<string>;
  /** Those of them that the list shows now. */
  rows: readonly Row[];
  onClear: () => void;
}

/** Why none of them may be changed; undefined where one may, or is not shown. */
export function noneMayChange(
  who: SessionView | undefined,
  rows: readonly Row[],
): string | undefined {
  let reason: string | undefined;
  for (const job of rows.flatMap(jobsOf)) {
    const denied = FINAL.has(job.state) ? "All selected jobs have ended." : noChange(who, job);
    if (!denied) return undefined;
    reason = denied;
  }
  return reason;
}

export function Selected({ names, rows, onClear }: Props) {
  const who = useWho();
  const denied = names.size === rows.length ? noneMayChange(who, rows) : undefined;
  const compared = rows
    .flatMap(jobsOf)
    .slice(0, MOST_COMPARED)
    .map((job) => job.id);
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (to: string) => post<JobsChanged>("/v1/jobs/changes", { jobs: [...names], to }),
    onSuccess: () => {
      onClear();
      void client.invalidateQueries({ queryKey: ["jobs"] });
    },
  });
  const done = change.data;
  if (!names.size && !done && !change.error) return null;
  return (
    <div className="tools" role="group" aria-label="Selected jobs">
      {names.size > 0 && (
        <>
          <b>{count(names.size)} selected</b>
          {CHANGES.map(([to, name, says]) => (
            <Confirm
              key={to}
              name={name}
              danger={to === "cancel"}
              title={`${name} the selected jobs?`}
              says={says}
              onYes={() => change.mutate(to)}
              disabled={change.isPending}
              denied={denied}
            />
          ))}
          {compared.length > 1 && (
            <Link to="/compare" search={{ jobs: compared.join(",") }} className="button">
              Compare{rows.flatMap(jobsOf).length > MOST_COMPARED && ` the first ${MOST_COMPARED}`}
            </Link>
          )}
          <button type="button" className="plain" onClick={onClear}>
            Clear
          </button>
        </>
      )}
      {done && !names.size && (
        <span role="status">
          {plural(done.jobs.length, "job")} changed
          {done.refused.map((one) => (
            <span key={one.asked + one.message} className="warn">
              ; {one.message}
            </span>
          ))}
        </span>
      )}
      <Wrong error={change.error} />
    </div>
  );
}
