/** What a job wrote into its work folder and the nodes keep, with each file to download. */

import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, getFile, part, Refused } from "../api/http";
import { FINAL } from "../api/queries";
import { useWho } from "../api/rights";
import type { Outputs as Found, JobDetail, NodeOutputs, OutputFileView } from "../api/types";
import { At, Card, Empty, Wrong } from "../parts/basic";
import { save } from "../parts/save";
import { bytes, count, full, plural } from "../parts/say";
import { type Column, Table } from "../parts/Table";
import { onlyFile } from "./tar";

/** What a browser is asked to hold at once; more is copied by `corral cp`. */
const MOST_BYTES = 2_000_000_000;
const SHOWN = 100;

interface Row extends OutputFileView {
  node: string;
}

export function Outputs({ job }: { job: JobDetail }) {
  const who = useWho();
  const [asked, ask] = useState(false);
  const mayRead = job.run !== null; // another's is not to be seen
  // A look at another's outputs stands in the audit log, and one at a running job asks its nodes.
  const open = asked || (FINAL.has(job.state) && job.owner === who?.user);
  const { data, error, isFetching, refetch } = useQuery({
    queryKey: [`job:${job.id}`, "outputs", job.attempt],
    queryFn: () => get<Found>(`/v1/jobs/${part(job.id)}/outputs`),
    enabled: open && mayRead && job.attempt > 0,
    staleTime: 60_000,
  });
  if (!mayRead || job.attempt === 0) return null;
  return (
    <Card
      title="Kept outputs"
      aside={
        <>
          {data?.kept_until && `kept until ${full(data.kept_until)}`}
          <button
            type="button"
            disabled={isFetching}
            onClick={() => (open ? void refetch() : ask(true))}
          >
            {open ? "Refresh" : "Show"}
          </button>
        </>
      }
      bare
    >
      <Wrong error={error} />
      {data && <Files job={job} found={data} />}
    </Card>
  );
}

function Files({ job, found }: { job: JobDetail; found: Found }) {
  const fetched = useMutation({
    mutationFn: (row: Row) => download(job.id, found.attempt, row),
  });
  const rows = found.nodes.flatMap((node) =>
    node.files.map((file): Row => ({ ...file, node: node.node })),
  );
  const columns: Column<Row>[] = [
    { name: "File", look: "wide", of: (row) => <code>{row.path}</code> },
    { name: "Size", look: "number", of: (row) => bytes(row.bytes) },
    { name: "Written", look: "tight", of: (row) => <At at={row.modified_at} /> },
    { name: "Node", look: "tight soft", of: (row) => row.node },
    {
      name: "Copy",
      look: "tight",
      of: (row) =>
        row.bytes > MOST_BYTES ? (
          <code>corral cp {`${job.id}:${row.path}`} .</code>
        ) : (
          <button
            type="button"
            aria-label={`Download ${row.path} of ${row.node}`}
            disabled={fetched.isPending}
            onClick={() => fetched.mutate(row)}
          >
            Download
          </button>
        ),
    },
  ];
  const all = found.nodes.reduce((sum, node) => sum + node.count, 0);
  return (
    <>
      <Wrong error={fetched.error} />
      {rows.length > 0 && (
        <Table
          of="Kept outputs"
          rows={rows.slice(0, SHOWN)}
          keyOf={(row) => `${row.node}:${row.path}`}
          columns={columns}
        />
      )}
      {all > Math.min(rows.length, SHOWN) && (
        <p className="body soft">
          {count(Math.min(rows.length, SHOWN))} of {plural(all, "file")}. All of them:{" "}
          <code>corral cp {job.id}: .</code>
        </p>
      )}
      {found.nodes.map((node) => (
        <Nothing key={node.node} node={node} />
      ))}
    </>
  );
}

/** Why a node lists no file. */
function Nothing({ node }: { node: NodeOutputs }) {
  if (node.trouble) return <p className="body warn">{node.trouble}</p>;
  if (node.count > 0) return null;
  return (
    <Empty>
      {node.is_kept
        ? `The job has written no files on ${node.node} yet.`
        : `No files are kept on ${node.node}: the job wrote none, or they were removed.`}
    </Empty>
  );
}

async function download(job: string, attempt: number, row: Row): Promise<void> {
  const { path, node } = row;
  const file = await onlyFile(
    await getFile(`/v1/jobs/${part(job)}/files`, { path, node, attempt }),
  );
  if (!file)
    throw new Refused(
      0,
      "cut_short",
      `the download of ${path} is incomplete`,
      `try again, or run: corral cp ${job}:${path} .`,
    );
  save(file, path.split("/").at(-1) ?? path);
}
