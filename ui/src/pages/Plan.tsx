/** The planner's questions as forms, made from the shapes of their requests. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useId, useState } from "react";
import { post } from "../api/http";
import { PLAN_FORMS, type PlanField, type PlanReport, type PlanTable } from "../api/types";
import { Card, Head, Scroll, Segments, Wrong } from "../parts/basic";
import { AMOUNT, amount, count, percent, words } from "../parts/say";

const SAYS: Record<string, string> = {
  model: "On which GPUs does a model fit?",
  train: "How fast does a training run go, and what does it cost?",
  serve: "How many GPUs does a rate of requests require?",
  cluster: "What does a cluster need: network, storage, power?",
  cost: "Is it cheaper to buy or to rent GPUs?",
  reliability: "How often does a run fail, and how much time is lost?",
};

/** What was typed, as the API takes it; a field that was left empty keeps its preset. */
export function asked(fields: readonly PlanField[], typed: FormData): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const field of fields) {
    const text = String(typed.get(field.name) ?? "").trim();
    if (field.kind === "boolean") body[field.name] = typed.get(field.name) === "on";
    else if (text === "") continue;
    else if (field.kind === "integer" || field.kind === "number") body[field.name] = amount(text);
    else if (field.kind === "list") body[field.name] = text.split(",").map((one) => one.trim());
    else if (field.kind === "object") body[field.name] = JSON.parse(text);
    else body[field.name] = text;
  }
  return body;
}

/** Fields that say something only while another is ticked. */
const ONLY_WITH: Record<string, string> = { rank: "lora" };

/** What is planned stands in the address, so that an answer can be linked and comes back. */
export function Plan() {
  const kinds = Object.keys(PLAN_FORMS);
  const search = useSearch({ from: "/plan" });
  const navigate = useNavigate({ from: "/plan" });
  const first = kinds.includes("train") ? "train" : (kinds[0] ?? "");
  const kind = search.kind && kinds.includes(search.kind) ? search.kind : first;
  return (
    <>
      <Head title="Plan" tab={`${words(kind)} · Plan`} />
      <div className="tools">
        <Segments
          says="What to plan"
          of={kinds}
          is={kind}
          onPick={(one) => void navigate({ search: { kind: one } })}
        />
        <span className="soft">{SAYS[kind]}</span>
      </div>
      <Ask
        key={kind}
        kind={kind}
        fields={PLAN_FORMS[kind] ?? []}
        ask={search.ask}
        onAsk={(ask) => void navigate({ search: { kind, ask } })}
      />
    </>
  );
}

type Body = Record<string, unknown>;
interface AskProps {
  kind: string;
  fields: readonly PlanField[];
  ask: Body | undefined;
  onAsk: (ask: Body) => void;
}

function Ask({ kind, fields, ask, onAsk }: AskProps) {
  const plan = useQuery({
    queryKey: ["plan", kind, ask],
    queryFn: () => post<PlanReport>(`/v1/plan/${kind}`, ask),
    enabled: ask !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
  const [wrong, setWrong] = useState<unknown>();
  const [ticked, setTicked] = useState<ReadonlySet<string>>(
    () => new Set(fields.filter((one) => (ask?.[one.name] ?? one.preset) === true).map(nameOf)),
  );
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setWrong(undefined);
    try {
      const body = asked(fields, new FormData(event.currentTarget));
      if (JSON.stringify(body) === JSON.stringify(ask)) void plan.refetch();
      else onAsk(body);
    } catch (error) {
      setWrong(error);
    }
  };
  const tick = (event: FormEvent<HTMLFormElement>) => {
    const { type, name, checked } = event.target as HTMLInputElement;
    if (type !== "checkbox") return;
    const after = new Set(ticked);
    if (checked) after.add(name);
    else after.delete(name);
    setTicked(after);
  };
  const names = new Set(fields.map(nameOf));
  const shown = fields.filter(({ name }) => {
    const other = ONLY_WITH[name];
    return !other || !names.has(other) || ticked.has(other);
  });
  const working = plan.fetchStatus !== "idle";
  return (
    <div className="grid">
      <Card title={words(kind)}>
        <form className="grid" onSubmit={submit} onChange={tick}>
          <div className="form explained">
            {shown.map((field) => (
              <Field key={field.name} field={field} given={ask?.[field.name]} />
            ))}
          </div>
          <div>
            <button type="submit" className="main" disabled={working}>
              {working ? "Planning …" : "Plan"}
            </button>
          </div>
        </form>
      </Card>
      <Wrong error={wrong ?? plan.error} />
      {plan.data && <Report report={plan.data} />}
    </div>
  );
}

const nameOf = (field: PlanField): string => field.name;

/** A value as somebody would have typed it. */
function written(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function Field({ field, given }: { field: PlanField; given: unknown }) {
  const { name, kind, preset, required, says, names } = field;
  const own = useId();
  const about = (
    <small id={`${own}-about`} className="soft">
      {says}
    </small>
  );
  if (kind === "boolean")
    return (
      <div className="field check">
        <label htmlFor={own}>{words(name)}</label>
        <input
          id={own}
          type="checkbox"
          name={name}
          defaultChecked={(given ?? preset) === true}
          aria-describedby={`${own}-about`}
        />
        {about}
      </div>
    );
  const isNumber = kind === "integer" || kind === "number";
  const said = preset === null || preset === undefined || preset === "" ? "" : String(preset);
  return (
    <div className="field">
      <label htmlFor={own}>
        {words(name)}
        {required ? " (required)" : ""}
      </label>
      <input
        id={own}
        name={name}
        inputMode={isNumber ? "decimal" : "text"}
        pattern={isNumber ? AMOUNT.source : undefined}
        title={isNumber ? "a number, for example 1e12, 70B or 15T" : undefined}
        required={required}
        placeholder={kind === "object" ? "{}" : said}
        defaultValue={written(given)}
        aria-describedby={`${own}-about`}
        list={names.length ? `${own}-names` : undefined}
      />
      {about}
      {names.length > 0 && (
        <datalist id={`${own}-names`}>
          {names.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
    </div>
  );
}

function Report({ report }: { report: PlanReport }) {
  return (
    <>
      <Card title={report.title}>
        <div className="grid">
          <p>{report.verdict}</p>
          {report.warnings.map((one) => (
            <p key={one} className="warn">
              {one}
            </p>
          ))}
          <dl className="pairs">
            {report.answers.map((one) => (
              <div key={one.name} style={{ display: "contents" }}>
                <dt>{one.name}</dt>
                <dd>
                  {one.band !== null ? rounded(one.value, one.band) : said(one.value)} {one.unit}
                  {one.band !== null && <span className="soft"> ± {percent(one.band)}</span>}
                  {one.note && <span className="soft"> · {one.note}</span>}
                </dd>
              </div>
            ))}
          </dl>
        </div>
      </Card>
      {report.tables.map((table) => (
        <Rows key={table.title} table={table} />
      ))}
      <Card title="Assumptions and sources">
        <div className="grid two">
          <ul>
            {report.assumed.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
          <ul className="soft">
            {report.sources.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </div>
      </Card>
    </>
  );
}

/** A number with no more digits than its error leaves: 1,160,000 ± 6 %. */
export function rounded(value: unknown, band: number): string {
  if (typeof value !== "number" || !value || !(band > 0)) return said(value);
  const digits = Math.min(6, Math.max(2, Math.ceil(-Math.log10(band)) + 1));
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(value))) + 1 - digits);
  return count(unit >= 1 ? Math.round(value / unit) * unit : Number(value.toPrecision(digits)));
}

function said(value: unknown): string {
  if (typeof value === "number") return count(value);
  if (value === null || value === undefined) return "–";
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function Rows({ table }: { table: PlanTable }) {
  return (
    <Card title={table.title} bare>
      <Scroll of={table.title}>
        <table>
          <thead>
            <tr>
              {table.columns.map((column) => (
                <th key={column.name}>
                  {column.name}
                  {column.unit && <span> ({column.unit})</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows of a report have no names
              <tr key={index}>
                {row.map((cell, place) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: nor have their cells
                  <td key={place} className={typeof cell === "number" ? "tight" : undefined}>
                    {said(cell)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {table.note && <p className="body soft">{table.note}</p>}
    </Card>
  );
}
