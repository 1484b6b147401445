/** The code of all pages: fetched once the first page stands, so that the next one needs no head. */

export const PARTS = {
  Jobs: () => import("./pages/Jobs"),
  Job: () => import("./pages/Job"),
  Nodes: () => import("./pages/Nodes"),
  Node: () => import("./pages/Node"),
  Queues: () => import("./pages/Queues"),
  Queue: () => import("./pages/Queue"),
  Services: () => import("./pages/Services"),
  Service: () => import("./pages/Service"),
  Money: () => import("./pages/Money"),
  Submit: () => import("./pages/Submit"),
  Plan: () => import("./pages/Plan"),
};

const AFTER_MS = 1500;

/** Fetch them when the browser has nothing else to do. The answer stops it. */
export function preloadWhenIdle(): () => void {
  const timer = window.setTimeout(() => {
    for (const part of Object.values(PARTS)) part().catch(() => undefined);
  }, AFTER_MS);
  return () => window.clearTimeout(timer);
}
