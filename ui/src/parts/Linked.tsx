/** A sentence of the head with its jobs as links, and its times as the page's. */

import { Link } from "@tanstack/react-router";
import { Fragment } from "react";
import { ownTime } from "./say";

const JOB = /\b(j\d{1,15}(?:_\d{1,9}){0,2})\b/;

export function Linked({ text }: { text: string }) {
  return ownTime(text)
    .split(JOB)
    .map((part, at) =>
      at % 2 ? (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts of a sentence have no other name
        <Link key={at} className="linked" to="/jobs/$job" params={{ job: part }}>
          {part}
        </Link>
      ) : (
        // biome-ignore lint/suspicious/noArrayIndexKey: as above
        <Fragment key={at}>{part}</Fragment>
      ),
    );
}
