import type { Attempt, JobDetail } from "../api/types";
import { At, Card, Lasted, Scroll } from "../parts/basic";
import { failureName } from "../parts/Failed";
import { NodeLink } from "../parts/HeatMap";
import { bytes, count, duration } from "../parts/say";

/** Whose budget of retries paid, as people say it. */
const FAULT_OF: Record<string, string> = {
  none: "–",
  wish: "–",
  user: "the job",
  infra: "the cluster",
};

function howItEnded(one: Attempt): string {
  if (one.evidence) return one.evidence;
  if (one.ended_at === null) return "–";
  return one.cause === "wish" ? "stopped on request" : "ended by itself";
}

export function Attempts({ job }: { job: JobDetail }) {
  if (!job.attempts.length) return null;
  return (
    <Card title="Attempts" bare>
      <Scroll of="Attempts">
        <table>
          <thead>
            <tr>
              <th className="number">No.</th>
              <th>Placed</th>
              <th className="number">Ran</th>
              <th>Nodes and GPUs</th>
              <th>Steps</th>
              <th>Fault of</th>
              <th>How it ended</th>
            </tr>
          </thead>
          <tbody>
            {job.attempts.toReversed().map((one) => (
              <tr key={one.number}>
                <td className="number">{one.number}</td>
                <td className="tight">
                  <At at={one.placed_at} />
                </td>
                <td className="number">
                  {one.running_at === null ? (
                    "–"
                  ) : (
                    <Lasted from={one.running_at} to={one.ended_at} />
                  )}
                </td>
                <td className="wide">
                  {one.seats.map((seat) => (
                    <span key={seat.node}>
                      <NodeLink id={seat.node} />{" "}
                      <span className="soft">
                        {seat.gpus.length ? `[${seat.gpus.join(" ")}] ` : ""}
                      </span>
                    </span>
                  ))}
                </td>
                <td className="tight">
                  {one.last_step === null ? "–" : `${one.resume_step ?? 0} to ${one.last_step}`}
                </td>
                <td className="tight">
                  {FAULT_OF[one.cause] ?? one.cause}
                  {one.culprit && <p className="soft">{one.culprit}</p>}
                </td>
                <td className="wide soft">
                  {one.failure && <b className="bad">{failureName(one.failure)} </b>}
                  {howItEnded(one)}
                  {one.quote && <code className="quote">{one.quote}</code>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

export function Checkpoints({ job }: { job: JobDetail }) {
  if (!job.checkpoints.length) return null;
  return (
    <Card title="Checkpoints" aside={`${count(job.checkpoints.length)} recorded`} bare>
      <Scroll of="Checkpoints">
        <table>
          <thead>
            <tr>
              <th className="number">Step</th>
              <th>Saved</th>
              <th className="number">Size</th>
              <th className="number">Took</th>
              <th className="number">Held up training</th>
              <th>Verified</th>
              <th>Where</th>
            </tr>
          </thead>
          <tbody>
            {job.checkpoints.toReversed().map((one) => (
              <tr key={`${one.attempt}-${one.step}`}>
                <td className="number">{count(one.step)}</td>
                <td className="tight">
                  <At at={one.at} />
                </td>
                <td className="number">{bytes(one.size_bytes)}</td>
                <td className="number">{count(one.seconds)} s</td>
                <td className="number">{count(one.stall_seconds)} s</td>
                <td className={one.quarantined ? "bad" : "good"}>{one.quarantined || "yes"}</td>
                <td className="wide soft">
                  <code>{one.path}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

export function Receipts({ job }: { job: JobDetail }) {
  if (!job.receipts.length) return null;
  return (
    <Card title="Receipts" aside="what interruptions cost" bare>
      <Scroll of="Receipts">
        <table>
          <thead>
            <tr>
              <th>At</th>
              <th>What</th>
              <th className="number">GPU time lost</th>
              <th className="number">Steps lost</th>
              <th>In words</th>
            </tr>
          </thead>
          <tbody>
            {job.receipts.toReversed().map((one) => (
              <tr key={`${one.attempt}-${one.kind}-${one.seen_at}`}>
                <td className="tight">
                  <At at={one.seen_at} />
                </td>
                <td className="tight">{one.kind}</td>
                <td className="number">{duration(one.gpu_seconds_lost)}</td>
                <td className="number">{one.steps_lost ?? "–"}</td>
                <td className="wide soft">{one.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}
