/** What an attempt failed of, in the API's own words: those that `corral why` says. */

import type { Why } from "../api/types";

type Found = NonNullable<Why["failed"]>;

export function Failed({ is: one }: { is: Found }) {
  return (
    <dl className="pairs failed" aria-label={`What attempt ${one.attempt} failed of`}>
      <dt>Failed of</dt>
      <dd>
        <b className="bad">{one.failure}</b>: {one.text}
      </dd>
      {one.culprit && (
        <>
          <dt>Culprit</dt>
          <dd>{one.culprit}</dd>
        </>
      )}
      {one.evidence && (
        <>
          <dt>Evidence</dt>
          <dd>{one.evidence}</dd>
        </>
      )}
      <Quote line={one.quote} />
      <dt>To do</dt>
      <dd>{one.next}</dd>
    </dl>
  );
}

/** The line of its log that shows it; empty for who may not read the log. */
function Quote({ line }: { line: string }) {
  if (!line) return null;
  return (
    <>
      <dt>Its log</dt>
      <dd>
        <code className="quote">{line}</code>
      </dd>
    </>
  );
}
