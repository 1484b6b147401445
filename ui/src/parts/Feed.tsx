import { Link } from "@tanstack/react-router";
import type { EventView } from "../api/types";
import { At, Empty } from "./basic";
import { ownTime } from "./say";

interface Props {
  events: readonly EventView[];
  short?: boolean;
  /** Id that is not linked, because the page is about it. */
  about?: string;
}

/** What happened, newest first. */
export function Feed({ events, short, about }: Props) {
  if (!events.length) return <Empty>No events yet.</Empty>;
  return (
    <ol className={short ? "feed short" : "feed"} tabIndex={short ? 0 : undefined}>
      {events.map((event) => (
        <li key={event.number}>
          <At at={event.at} />
          <p>
            {event.job && event.job !== about && (
              <Link className="linked" to="/jobs/$job" params={{ job: event.job }}>
                {event.job}
              </Link>
            )}{" "}
            {event.node && !event.job && (
              <Link className="linked" to="/nodes/$node" params={{ node: event.node }}>
                {event.node}
              </Link>
            )}{" "}
            {ownTime(event.text)}
          </p>
        </li>
      ))}
    </ol>
  );
}
