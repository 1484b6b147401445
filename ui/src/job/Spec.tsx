/** What a job was asked for, as YAML, and the way to ask for it again with a change. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { get, part } from "../api/http";
import type { JobDetail, WrittenSpec } from "../api/types";
import { Card, Wrong } from "../parts/basic";

const SUBMITTED_KEY = "corral-spec"; // what the page that submits begins with
const NO_WORKDIR =
  "# The job had a workdir, which is not in this text. To upload a workdir, run: corral apply\n";

/** The spec as text. The library that writes YAML is loaded with the first one. */
async function textOf(job: string): Promise<string> {
  const [answer, { stringify }] = await Promise.all([
    get<WrittenSpec>(`/v1/jobs/${part(job)}/spec`),
    import("yaml"),
  ]);
  return `${answer.has_workdir ? NO_WORKDIR : ""}${stringify(answer.spec)}`;
}

export function Spec({ job }: { job: JobDetail }) {
  const [open, setOpen] = useState(false);
  const navigate = useNavigate();
  const { data, error } = useQuery({
    queryKey: ["spec", job.id],
    queryFn: () => textOf(job.id),
    enabled: open,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (job.run === null) return null; // another's, and not to be seen
  return (
    <Card
      title="Spec"
      aside={
        <>
          {open && data !== undefined && (
            <button
              type="button"
              onClick={() => {
                sessionStorage.setItem(SUBMITTED_KEY, data);
                void navigate({ to: "/submit" });
              }}
            >
              Edit and submit again
            </button>
          )}
          <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide" : "Show"}
          </button>
        </>
      }
      bare
    >
      {open && (
        <>
          <Wrong error={error} />
          <pre
            className="logs"
            role="region"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
            tabIndex={0}
            aria-label="Spec"
          >
            {data ?? (error ? "" : "…")}
          </pre>
        </>
      )}
    </Card>
  );
}
