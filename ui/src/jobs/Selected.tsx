/** Jobs that are ticked, and one request that changes all of them. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { post } from "../api/http";
import type { JobsChanged } from "../api/types";
import { Wrong } from "../parts/basic";
import { Confirm } from "../parts/Confirm";
import { count, plural } from "../parts/say";

const CHANGES: [string, string, string][] = [
  ["suspend", "Suspend", "They save, stop, and are kept for later."],
  ["resume", "Resume", "They go on as soon as they have a place."],
  ["cancel", "Cancel", "They are stopped, and do not start again."],
];

interface Props {
  names: ReadonlySet<string>;
  onClear: () => void;
}

export function Selected({ names, onClear }: Props) {
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
              title={`${name} what is selected?`}
              says={says}
              onYes={() => change.mutate(to)}
              disabled={change.isPending}
            />
          ))}
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
