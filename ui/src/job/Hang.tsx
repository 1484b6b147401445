/** The newest hang of a job: for how long it made no step, and where its ranks stood. */

import type { AttemptView, JobDetail } from "../api/types";
import { At, Card } from "../parts/basic";

/** The newest attempt that hung, undefined where none did. */
export const newestHang = (attempts: readonly AttemptView[]): AttemptView | undefined =>
  attempts.findLast((attempt) => attempt.hang !== null);

export function Hang({ job }: { job: JobDetail }) {
  const attempt = newestHang(job.attempts);
  const hang = attempt?.hang;
  if (!attempt || !hang) return null;
  return (
    <Card title="Hang" aside={`attempt ${attempt.number}`}>
      <div className="grid" style={{ gap: 8 }}>
        <p>{hang.text}</p>
        {hang.places.length > 0 && <pre className="quote frames">{hang.places.join("\n")}</pre>}
        <p className="soft">
          <At at={hang.at} />{" "}
          {attempt.ended_at === null ? "The attempt goes on." : "The attempt was ended."}
        </p>
      </div>
    </Card>
  );
}
