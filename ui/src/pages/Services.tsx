/** Services: what each serves, with how many replicas, and how fast. */

import { Link } from "@tanstack/react-router";
import { useServices } from "../api/queries";
import type { ServiceRow } from "../api/types";
import { Ago, Card, Empty, Head, State, Wrong } from "../parts/basic";
import { count, latency } from "../parts/say";
import { type Column, Table } from "../parts/Table";

export function Services() {
  const { data, error, isPending } = useServices();
  const services = data?.services ?? [];
  return (
    <>
      <Head title="Services" />
      <Wrong error={error} />
      <Card title="Services" aside={data?.url && <code>{`${data.url}/v1`}</code>} bare>
        {services.length ? (
          <Table of="Services" rows={services} keyOf={(one) => one.id} columns={COLUMNS} />
        ) : (
          !isPending && (
            <Empty>
              No services. To start one, run{" "}
              <code>corral serve NAME --engine vllm --model hf://org/name</code>.
            </Empty>
          )
        )}
      </Card>
    </>
  );
}

const COLUMNS: Column<ServiceRow>[] = [
  {
    name: "Service",
    look: "tight",
    of: (service) => (
      <b>
        <Link to="/services/$service" params={{ service: service.name }}>
          {service.name}
        </Link>
      </b>
    ),
  },
  { name: "State", look: "tight", of: (service) => <State is={service.condition} /> },
  { name: "Model", look: "tight", of: modelOf },
  {
    name: "Revision",
    look: "number",
    of: (service) =>
      service.canary === null ? service.revision : `${service.revision}, canary ${service.canary}`,
  },
  {
    name: "Ready",
    look: (service) => (service.ready < service.wanted ? "number warn" : "number"),
    of: readyOf,
  },
  { name: "Replicas", look: "number", of: (service) => service.replicas },
  {
    name: "Requests/s",
    look: "number",
    of: (service) => count(service.rates.requests_per_second),
  },
  { name: "Under way", look: "number", of: (service) => count(service.rates.under_way) },
  {
    name: "TTFT p90",
    title: "Time to first token that 9 of 10 requests of the last minute kept",
    look: "number",
    of: (service) => latency(service.rates.ttft_p90_seconds),
  },
  { name: "Owner", look: "tight soft", of: (service) => service.owner },
  { name: "Created", look: "tight soft", of: (service) => <Ago at={service.created_at} /> },
];

/** How many of the wanted replicas are ready, of each role if there are any. */
export function readyOf(service: Pick<ServiceRow, "ready" | "wanted" | "roles">): string {
  if (!service.roles.length) return `${service.ready} of ${service.wanted}`;
  return service.roles.map((one) => `${one.role} ${one.ready} of ${one.wanted}`).join(", ");
}

/** The name under which clients call the service: that of its model if it has one. */
export function modelOf(service: Pick<ServiceRow, "models" | "name">): string {
  return service.models.find((model) => model !== service.name) ?? service.name;
}
