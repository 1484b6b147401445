/** What every page is made of. */

import { type ReactNode, useEffect, useRef, useState } from "react";
import { Refused } from "../api/http";
import { useNow } from "./clock";
import { clock, duration, full, ownTime, words } from "./say";
import { useTab } from "./tab";

const TONES: Record<string, string> = {
  RUNNING: "linked pulse",
  STARTING: "warn pulse",
  QUEUED: "soft hollow",
  HELD: "soft square hollow",
  STOPPING: "warn",
  RECOVERING: "warn pulse",
  SUSPENDED: "soft square",
  DONE: "good",
  FAILED: "bad square",
  CANCELLED: "soft",
  ACTIVE: "good",
  READY: "linked",
  PARTIAL: "warn",
  FAILING: "bad square",
  DRAINING: "warn",
  STOPPED: "soft",
  alive: "good",
  silent: "warn pulse",
  dead: "bad square",
};

/** The word and a mark whose form and colour both tell it. */
export function State({ is }: { is: string }) {
  return <span className={`state ${TONES[is] ?? "soft"}`}>{is.toLowerCase()}</span>;
}

export function Ago({ at }: { at: number }) {
  const now = useNow();
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={full(at)}>
      {duration(now - at)} ago
    </time>
  );
}

/** How long since; of what is over, how long it took. */
export function Lasted({ from, to }: { from: number; to?: number | null }) {
  const now = useNow();
  return <span title={full(from)}>{duration((to ?? now) - from)}</span>;
}

export function At({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={full(at)}>
      {clock(at)}
    </time>
  );
}

/** What is wider than its card scrolls in it; then, and only then, the keyboard can come to it. */
export function Scroll({ of, children }: { of: string; children: ReactNode }) {
  const own = useRef<HTMLDivElement>(null);
  const [wide, setWide] = useState(false);
  useEffect(() => {
    const box = own.current;
    if (!box) return;
    const seen = new ResizeObserver(() => setWide(box.scrollWidth > box.clientWidth));
    seen.observe(box);
    for (const one of box.children) seen.observe(one);
    return () => seen.disconnect();
  }, []);
  const reached = wide ? { tabIndex: 0, role: "region", "aria-label": of } : {};
  return (
    <div className="scroll" ref={own} {...reached}>
      {children}
    </div>
  );
}

/** One of a few, all of them seen at once; `says` what they are. */
export function Segments<Kind extends string>(asked: {
  says: string;
  of: readonly Kind[];
  is: Kind;
  onPick: (kind: Kind) => void;
}) {
  return (
    <fieldset className="segments">
      <legend className="hidden">{asked.says}</legend>
      {asked.of.map((one) => (
        <button
          type="button"
          key={one}
          aria-pressed={one === asked.is}
          onClick={() => asked.onPick(one)}
        >
          {words(one)}
        </button>
      ))}
    </fieldset>
  );
}

/** Parts of a whole, each a number; the text beside it says the same. */
export function Meter({ of, parts }: { of: number; parts: number[] }) {
  return (
    <span className="meter" aria-hidden="true">
      {parts.map((part, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts have no other name
        <i key={index} style={{ width: `${of ? Math.min(100, (100 * part) / of) : 0}%` }} />
      ))}
    </span>
  );
}

interface HeadProps {
  title: string;
  /** The title of the browser's tab, where it is not that of the page. */
  tab?: string | undefined;
  /** A state that the tab's mark shows by its colour. */
  mark?: string | undefined;
  children?: ReactNode;
}

export function Head({ title, tab, mark, children }: HeadProps) {
  useTab(tab ?? title, TONES[mark ?? ""]?.split(" ")[0]);
  return (
    <header className="head">
      <h1 className="cut">{title}</h1>
      {children}
    </header>
  );
}

interface CardProps {
  title: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  bare?: boolean;
}

/** A part of a page; `bare`: what is in it reaches the edge. */
export function Card({ title, aside, children, bare }: CardProps) {
  return (
    <section className="card">
      <header>
        <h2>{title}</h2>
        {aside !== undefined && <div className="aside">{aside}</div>}
      </header>
      {bare ? children : <div className="body">{children}</div>}
    </section>
  );
}

export function Tile({
  name,
  children,
  note,
}: {
  name: string;
  children: ReactNode;
  note?: ReactNode;
}) {
  return (
    <div className="tile">
      <dt>{name}</dt>
      <dd className="big">{children}</dd>
      {note !== undefined && <dd className="note">{note}</dd>}
    </div>
  );
}

/** A refusal in its own words, with the next thing to do. */
export function Wrong({ error }: { error: unknown }) {
  if (!error) return null;
  const hint = error instanceof Refused ? error.hint : "";
  return (
    <div className="notice bad" role="alert">
      <p>
        {ownTime(error instanceof Error ? error.message : String(error))}
        {hint && <span className="soft"> ({hint})</span>}
      </p>
    </div>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}
