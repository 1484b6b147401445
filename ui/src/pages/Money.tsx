/** Where GPU hours and money went: the ledger's reports, and what budgets have left. */

import { useState } from "react";
import { type ReportKind, useQueues, useReport } from "../api/queries";
import type { ReportColumn, ReportView } from "../api/types";
import { Card, Empty, Head, Segments, Tile, Wrong } from "../parts/basic";
import { count, percent, words } from "../parts/say";
import { type Column, Table } from "../parts/Table";
import { Budgets } from "./Queues";

const KINDS: Record<ReportKind, string> = {
  cost: "by the cluster's own prices, and at list prices of clouds (USD) where it has none; the two are not added",
  usage: "GPU hours that were held, and how busy these GPUs were",
  waste: "held GPU hours without useful work, by reason",
  goodput: "held GPU hours, by outcome",
};
const BYS = ["queue", "user", "gpu-type", "job"];
const PERIODS: [number, string][] = [
  [1, "Today"],
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
];

export function said(value: number | null | undefined, column: ReportColumn): string {
  if (value === null || value === undefined) return "–";
  return column.unit === "share" ? percent(value) : count(value);
}

export function Money() {
  const [kind, setKind] = useState<ReportKind>("cost");
  const [by, setBy] = useState("queue");
  const [days, setDays] = useState(7);
  const { data: found, error } = useReport(kind, by, days);
  const data = found && withoutUnused(found);
  const queues = useQueues();
  return (
    <>
      <Head title="Money" />
      <div className="tools">
        <Segments
          says="What is reported"
          of={Object.keys(KINDS) as ReportKind[]}
          is={kind}
          onPick={setKind}
        />
        <select aria-label="By" value={by} onChange={(event) => setBy(event.target.value)}>
          {BYS.map((one) => (
            <option key={one} value={one}>
              By {one.replace("-", " ").replace("gpu", "GPU")}
            </option>
          ))}
        </select>
        <select
          aria-label="Period"
          value={days}
          onChange={(event) => setDays(Number(event.target.value))}
        >
          {PERIODS.map(([number, name]) => (
            <option key={number} value={number}>
              {name}
            </option>
          ))}
        </select>
        <span className="soft">{KINDS[kind]}</span>
      </div>
      <Wrong error={error} />
      <div className="grid">
        {data && <Totals report={data} />}
        {data && <Days report={data} />}
        {data && <Rows report={data} />}
        <Budgets queues={queues.data?.queues ?? []} />
      </div>
    </>
  );
}

/** The text of a total and its unit, which one that was not measured does not have. */
export function totalOf(value: number | null | undefined, column: ReportColumn): [string, string] {
  if (value === null || value === undefined) return ["not measured", ""];
  return [said(value, column), column.unit === "share" ? "" : column.unit];
}

function Total({ of: [text, unit] }: { of: [string, string] }) {
  return (
    <>
      {text} {unit && <small>{unit}</small>}
    </>
  );
}

function Totals({ report }: { report: ReportView }) {
  return (
    <dl className="tiles">
      {report.columns.map((column, index) => (
        <Tile key={column.name} name={words(column.name)}>
          <Total of={totalOf(report.total[index], column)} />
        </Tile>
      ))}
    </dl>
  );
}

/** The columns that tell something: of prices of a kind that nothing has, none. */
export function withoutUnused(report: ReportView): ReportView {
  if (report.kind !== "cost") return report;
  const total = (name: string) => {
    const value = report.total[report.columns.findIndex((one) => one.name === name)] ?? 0;
    return Math.round(100 * value); // less than half a hundredth is shown as 0
  };
  const unused = !total("list price")
    ? ["list price", "wasted of it", "not used of it"]
    : !total("money")
      ? ["money", "wasted", "not used"]
      : [];
  const kept = report.columns.flatMap((one, at) => (unused.includes(one.name) ? [] : [at]));
  const some = <Kind,>(values: Kind[]): Kind[] => kept.map((at) => values[at] as Kind);
  return {
    ...report,
    columns: some(report.columns),
    total: some(report.total),
    rows: report.rows.map((row) => ({ ...row, values: some(row.values) })),
    days: report.days.map((one) => ({ ...one, values: some(one.values) })),
  };
}

/** The first column that is no share, a bar a day. */
function Days({ report }: { report: ReportView }) {
  const place = report.kind === "cost" ? 1 : 0;
  const column = report.columns[place];
  const most = Math.max(...report.days.map((one) => one.values[place] ?? 0));
  if (!column || report.days.length < 2 || !most) return null;
  const title = `${words(column.name)} by day${column.unit ? `, in ${column.unit}` : ""}`;
  return (
    <Card title={title} aside={`maximum: ${said(most, column)}`}>
      <div
        className="days"
        role="img"
        aria-label={report.days
          .map((one) => `${one.day}: ${said(one.values[place], column)}`)
          .join(", ")}
      >
        {report.days.map((one) => (
          <i
            key={one.day}
            style={{ height: `${(100 * (one.values[place] ?? 0)) / most}%` }}
            title={`${one.day}: ${said(one.values[place], column)} ${column.unit}`}
          />
        ))}
      </div>
    </Card>
  );
}

function columnsOf(report: ReportView): Column<ReportView["rows"][number]>[] {
  const whose: Column<ReportView["rows"][number]> = {
    name: words(report.by.replace("-", " ")),
    look: "tight",
    of: (row) => (
      <>
        <b>{row.name}</b> <span className="soft">{row.more}</span>
      </>
    ),
  };
  const values = report.columns.map(
    (column, index): Column<ReportView["rows"][number]> => ({
      name: `${words(column.name)}${column.unit && column.unit !== "share" ? ` (${column.unit})` : ""}`,
      look: "number",
      of: (row) => said(row.values[index], column),
    }),
  );
  return [whose, ...values];
}

function Rows({ report }: { report: ReportView }) {
  if (!report.rows.length) return <Empty>No GPU was held in this period.</Empty>;
  return (
    <Card
      title={`By ${report.by.replace("gpu-type", "GPU type")}`}
      aside={`${report.first} to ${report.last}, days in UTC`}
      bare
    >
      <Table
        of="The report"
        rows={report.rows}
        keyOf={(row) => row.name}
        columns={columnsOf(report)}
      />
      {report.rest > 0 && (
        <p className="empty">For {count(report.rest)} more rows, run: corral report</p>
      )}
    </Card>
  );
}
