/** Rates, latencies and replicas of a service over the last hours. */

import { useState } from "react";
import { Card } from "./basic";
import { Curves, type Wanted } from "./Curves";

const HOUR = 3600;
const SPANS: Record<string, number> = { "1 hour": 1, "6 hours": 6, "1 day": 24, "1 week": 168 };

const CURVES: Record<string, Wanted> = {
  Requests: {
    fields: { requests_per_second: "all", failed_per_second: "failed" },
    unit: "a second",
  },
  "Time to first token": { fields: { ttft_p50: "p50", ttft_p90: "p90" }, unit: "ms", times: 1000 },
  "Time between tokens": { fields: { itl_p50: "p50", itl_p90: "p90" }, unit: "ms", times: 1000 },
  Replicas: {
    fields: { wanted: "wanted", ready: "ready", sleeping: "sleeping" },
    unit: "replicas",
  },
  "Requests under way": { fields: { under_way: "under way" }, unit: "requests" },
  "Cached share of prompts": { fields: { cached_share: "cached share" }, unit: "%", times: 100 },
};

export function ServiceCurves({ service }: { service: string }) {
  const [span, setSpan] = useState("1 hour");
  const [now] = useState(() => Date.now() / 1000);
  const since = now - (SPANS[span] ?? 1) * HOUR;
  return (
    <Card
      title="Over time"
      aside={
        <select
          aria-label="Span of the curves"
          value={span}
          onChange={(event) => setSpan(event.target.value)}
        >
          {Object.keys(SPANS).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      }
    >
      <div className="grid curves">
        {Object.entries(CURVES).map(([title, wanted]) => (
          <section key={title}>
            <h3>{title}</h3>
            <Curves of={`service:${service}`} since={since} tall={120} {...wanted} />
          </section>
        ))}
      </div>
    </Card>
  );
}
