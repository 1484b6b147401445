/** The planner's questions as forms, made from the shapes of their requests. */

import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { post } from "../api/http";
import { PLAN_FORMS, type PlanField, type PlanReport, type PlanTable } from "../api/types";
import { Card, Head, Scroll, Segments, Wrong } from "../parts/basic";
import { AMOUNT, amount, count, percent, words } from "../parts/say";

const SAYS: Record<string, string> = {
  model: "Does a model fit, and on what?",
  train: "How fast does a training run go, and what does it cost?",
  serve: "How many GPUs serve so many requests?",
  cluster: "What does a cluster need: network, storage, power?",
  cost: "Buy or rent?",
  reliability: "How often does it break, and what is lost?",
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

export function Plan() {
  const kinds = Object.keys(PLAN_FORMS);
  const [kind, setKind] = useState(kinds.includes("train") ? "train" : (kinds[0] ?? ""));
  return (
    <>
      <Head title="Plan" />
      <div className="tools">
        <Segments says="What to plan" of={kinds} is={kind} onPick={setKind} />
        <span className="soft">{SAYS[kind]}</span>
      </div>
      <Ask key={kind} kind={kind} fields={PLAN_FORMS[kind] ?? []} />
    </>
  );
}

function Ask({ kind, fields }: { kind: string; fields: readonly PlanField[] }) {
  const plan = useMutation({
    mutationFn: (body: Record<string, unknown>) => post<PlanReport>(`/v1/plan/${kind}`, body),
  });
  const ask = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    plan.mutate(asked(fields, new FormData(event.currentTarget)));
  };
  return (
    <div className="grid">
      <Card title={words(kind)}>
        <form className="grid" onSubmit={ask}>
          <div className="form explained">
            {fields.map((field) => (
              <Field key={field.name} field={field} />
            ))}
          </div>
          <div>
            <button type="submit" className="main" disabled={plan.isPending}>
              {plan.isPending ? "Planning …" : "Plan"}
            </button>
          </div>
        </form>
      </Card>
      <Wrong error={plan.error} />
      {plan.data && <Report report={plan.data} />}
    </div>
  );
}

function Field({ field }: { field: PlanField }) {
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
          defaultChecked={preset === true}
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
        {required ? " (needed)" : ""}
      </label>
      <input
        id={own}
        name={name}
        inputMode={isNumber ? "decimal" : "text"}
        pattern={isNumber ? AMOUNT.source : undefined}
        title={isNumber ? "a number, for example 1e12, 70B or 15T" : undefined}
        required={required}
        placeholder={kind === "object" ? "{}" : said}
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
                  {said(one.value)} {one.unit}
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
      <Card title="Assumed, and by which sources">
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
