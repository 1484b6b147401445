/** What an attempt failed of, in the API's own words: those that `corral why` says. */

import type { Why } from "../api/types";

type Found = NonNullable<Why["failed"]>;

/** The class of a failure as words: program-error is a program error. */
export const failureName = (failure: string): string => failure.replaceAll("-", " ");

/** The evidence without what is said beside it. */
export function restOfEvidence(evidence: string, text: string): string {
  const cut = evidence.endsWith(text) ? evidence.slice(0, -text.length) : evidence;
  return cut.replace(/[:,;\s]+$/, "");
}

export function Failed({ is: one }: { is: Found }) {
  const evidence = restOfEvidence(one.evidence, one.text);
  return (
    <dl className="pairs failed" aria-label={`Why attempt ${one.attempt} failed`}>
      <dt>Cause</dt>
      <dd>
        <b className="bad">{one.text}</b> <span className="tag">{failureName(one.failure)}</span>
      </dd>
      {one.culprit && (
        <>
          <dt>Where</dt>
          <dd>{one.culprit}</dd>
        </>
      )}
      {evidence && (
        <>
          <dt>Evidence</dt>
          <dd>{evidence}</dd>
        </>
      )}
      <Quote line={one.quote} />
      {one.failed_at && (
        <>
          <dt>{one.failure === "hang" ? "Stood at" : "Raised at"}</dt>
          <dd>
            <code>{one.failed_at}</code>
          </dd>
        </>
      )}
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
