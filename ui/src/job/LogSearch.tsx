/** A search in a whole log, done by the head. */

import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get, part } from "../api/http";
import type { LogMatch, LogMatches } from "../api/types";
import { Wrong } from "../parts/basic";
import { bytes, plural } from "../parts/say";

interface Props {
  job: string;
  rank: string;
  attempt: number | undefined;
  ranked: boolean;
  onPick: (match: LogMatch, attempt: number) => void;
}

interface Result {
  text: string;
  matches: LogMatch[];
  bytes: number;
  attempt: number;
  next: string;
}

export function LogSearch({ job, rank, attempt, ranked, onPick }: Props) {
  const [text, setText] = useState("");
  const [result, setResult] = useState<Result>();
  const search = useMutation({
    mutationFn: async (before: Result | undefined) => {
      const asked = before?.text ?? text;
      const query = { text: asked, rank, attempt, after: before?.next };
      const found = await get<LogMatches>(`/v1/jobs/${part(job)}/logs/search`, query);
      return {
        text: asked,
        matches: [...(before?.matches ?? []), ...found.matches],
        bytes: (before?.bytes ?? 0) + found.searched_bytes,
        attempt: found.attempt,
        next: found.next,
      };
    },
    onSuccess: setResult,
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text) search.mutate(undefined);
  };
  return (
    <>
      <form className="tools log-tools" role="search" aria-label="Log" onSubmit={submit}>
        <input
          type="search"
          aria-label="Text to find in the log"
          placeholder="Find in the whole log"
          maxLength={200}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            if (!event.target.value) setResult(undefined);
          }}
        />
        <button type="submit" disabled={!text || search.isPending}>
          {search.isPending ? "Searching …" : "Find"}
        </button>
        <span className="soft" role="status">
          {result &&
            `${plural(result.matches.length, "line")} with “${result.text}” in ${bytes(result.bytes)}${
              result.next ? " so far" : ""
            }`}
        </span>
        {result && (
          <button type="button" className="plain" onClick={() => setResult(undefined)}>
            Close
          </button>
        )}
      </form>
      <Wrong error={search.error} />
      {result && result.matches.length > 0 && (
        <ol className="matches" aria-label="Lines that were found">
          {result.matches.map((match) => (
            <li key={`${match.rank}:${match.place}`}>
              <button type="button" onClick={() => onPick(match, result.attempt)}>
                {ranked && <span className="rank">[{match.rank}] </span>}
                {match.line || " "}
              </button>
            </li>
          ))}
          {result.next && (
            <li>
              <button type="button" onClick={() => search.mutate(result)}>
                Continue the search
              </button>
            </li>
          )}
        </ol>
      )}
    </>
  );
}
