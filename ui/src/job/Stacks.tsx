/** At which line each rank of a running job is, as `corral debug stacks` shows it. */

import { useMutation } from "@tanstack/react-query";
import { get, part } from "../api/http";
import type { Stacks as Found, JobDetail } from "../api/types";
import { Card, Empty, Wrong } from "../parts/basic";
import { plural } from "../parts/say";
import { mergeStacks, shortPath } from "./stacks";

const RUNS = new Set(["STARTING", "RUNNING", "STOPPING"]);

export function Stacks({ job }: { job: JobDetail }) {
  const look = useMutation({
    mutationFn: () => get<Found>(`/v1/jobs/${part(job.id)}/stacks`),
  });
  if (job.run === null || !RUNS.has(job.state)) return null;
  return (
    <Card
      title="Stacks"
      aside={
        <button type="button" disabled={look.isPending} onClick={() => look.mutate()}>
          {look.data ? "Read again" : "Read the stacks"}
        </button>
      }
    >
      <Wrong error={look.error} />
      {look.data ? (
        <Read found={look.data} />
      ) : (
        <p className="soft">The line of its program at which each rank is now.</p>
      )}
    </Card>
  );
}

function Read({ found }: { found: Found }) {
  const merged = mergeStacks(found.processes);
  const total = merged.reduce((sum, stack) => sum + stack.places.length, 0);
  const troubles = new Set([
    ...found.missing.map((missing) => `Node ${missing.node}: ${missing.trouble}`),
    ...found.processes.flatMap((process) => process.trouble || []),
  ]);
  return (
    <div className="grid" style={{ gap: 12 }}>
      {merged.map((stack) => (
        <div key={stack.places[0]}>
          <p>
            <b>{stack.places.join(", ")}</b>{" "}
            <span className="soft">
              {total > 1 && `${stack.places.length} of ${plural(total, "rank")} `}
              {stack.states.length > 0 && `(${stack.states.join(", ")})`}
            </span>
          </p>
          <pre className="quote frames">
            {stack.frames
              .map((frame) => `${frame.function}  ${shortPath(frame.file)}:${frame.line}`)
              .join("\n") || "no Python code runs"}
          </pre>
        </div>
      ))}
      {[...troubles].map((trouble) => (
        <p key={trouble} className="warn">
          {trouble}
        </p>
      ))}
      {total === 0 && troubles.size === 0 && <Empty>No rank of this job runs Python.</Empty>}
    </div>
  );
}
