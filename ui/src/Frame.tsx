/** What stands around every page: where one can go, who one is, and whether the head answers. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { isSignedOut } from "./api/client";
import { listen, useHeard } from "./api/live";
import { session, useStatus } from "./api/queries";
import { logOut } from "./api/session";
import type { SessionView } from "./api/types";
import { nextTheme, theme } from "./look/theme";
import { Login } from "./pages/Login";
import { Icon, type IconName } from "./parts/Icon";
import { count, moment, zone } from "./parts/say";
import { TokenMaker } from "./parts/TokenMaker";
import { preloadWhenIdle } from "./preload";

const PAGES: [string, string, IconName][] = [
  ["/", "Overview", "overview"],
  ["/jobs", "Jobs", "jobs"],
  ["/nodes", "Nodes", "nodes"],
  ["/queues", "Queues", "queues"],
  ["/services", "Services", "services"],
  ["/money", "Money", "money"],
  ["/plan", "Plan", "plan"],
  ["/submit", "Submit", "submit"],
];
const LINKS = { live: "live", connecting: "connecting", away: "head unreachable" };

export function Frame() {
  const { data, error, isPending } = useQuery(session);
  if (isSignedOut(error)) return <Login ended={data !== undefined} />;
  return <Inside who={data} known={!isPending} />;
}

/** Drawn before it is known who looks: nothing of the cluster is in it. */
function Inside({ who, known }: { who: SessionView | undefined; known: boolean }) {
  const client = useQueryClient();
  const { pathname } = useLocation();
  const { awaySince } = useHeard();
  useEffect(() => (known ? listen(client) : undefined), [client, known]);
  useEffect(() => (known ? preloadWhenIdle() : undefined), [known]);
  return (
    <div className="frame">
      <a className="skip button" href="#page">
        Skip to the page
      </a>
      <div className="side">
        <Link to="/" className="brand">
          <Icon name="brand" size={19} /> Corral
        </Link>
        <nav aria-label="Pages">
          {PAGES.map(([path, name, icon]) => {
            const here = path === "/" ? pathname === "/" : pathname.startsWith(path);
            return (
              <Link key={path} to={path} aria-current={here ? "page" : undefined}>
                <Icon name={icon} />
                {name}
                {known && path === "/jobs" && <Unfinished />}
              </Link>
            );
          })}
        </nav>
        <Foot who={who} />
      </div>
      <main id="page" tabIndex={-1} className={awaySince === undefined ? undefined : "old"}>
        {awaySince !== undefined && <Away since={awaySince} />}
        {known && <Outlet />}
      </main>
    </div>
  );
}

/** What is shown is old, and how old. */
function Away({ since }: { since: number }) {
  return (
    <p className="notice bad away" role="alert">
      The head does not answer. All data on this page is as of {moment(since)}. The connection is
      retried every few seconds.
    </p>
  );
}

function Unfinished() {
  const { data } = useStatus();
  const jobs = Object.values(data?.jobs ?? {}).reduce((sum, one) => sum + one, 0);
  return jobs ? <span className="count">{count(jobs)}</span> : null;
}

function Foot({ who }: { who: SessionView | undefined }) {
  const client = useQueryClient();
  const { link } = useHeard();
  const [look, setLook] = useState(theme());
  const leave = async () => {
    await logOut().catch(() => undefined);
    client.clear();
    location.assign("/");
  };
  return (
    <div className="foot">
      <span className="row">
        <span className={`link ${link}`} role="status">
          {LINKS[link]}
        </span>
        <span className="zone" title="The time zone of all times on these pages">
          {zone()}
        </span>
      </span>
      <div className="row">
        <span className="cut who" title={who && `${who.role} of cluster ${who.cluster}`}>
          {who && `${who.user} · ${who.role}`}
        </span>
        <button
          type="button"
          className="plain icon"
          title={`Theme: ${look}`}
          aria-label={`Theme: ${look}`}
          onClick={() => setLook(nextTheme())}
        >
          <Icon name="theme" />
        </button>
        {who && who.role !== "viewer" && <TokenMaker />}
        <button
          type="button"
          className="plain icon"
          title="Log out"
          aria-label="Log out"
          onClick={leave}
        >
          <Icon name="out" />
        </button>
      </div>
    </div>
  );
}
