import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { Frame } from "./Frame";
import { Nowhere } from "./pages/Nowhere";
import { Overview } from "./pages/Overview";
import { PARTS } from "./preload";

const root = createRootRoute({ component: Frame, notFoundComponent: Nowhere });

interface JobsSearch {
  text?: string;
  state?: string;
  owner?: string;
  queue?: string;
  whose?: "mine" | "all";
  sort?: string;
}

interface PlanSearch {
  kind?: string | undefined;
  ask?: Record<string, unknown> | undefined;
}

const word = (value: unknown): string | undefined =>
  typeof value === "string" && value ? value : undefined;

const routes = [
  createRoute({ getParentRoute: () => root, path: "/", component: Overview }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs",
    validateSearch: (search: Record<string, unknown>): JobsSearch => ({
      text: word(search.text),
      state: word(search.state),
      owner: word(search.owner),
      queue: word(search.queue),
      whose: search.whose === "mine" || search.whose === "all" ? search.whose : undefined,
      sort: word(search.sort),
    }),
    component: lazyRouteComponent(PARTS.Jobs, "Jobs"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/jobs/$job",
    component: lazyRouteComponent(PARTS.Job, "Job"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/compare",
    validateSearch: (search: Record<string, unknown>): { jobs?: string | undefined } => ({
      jobs: word(search.jobs),
    }),
    component: lazyRouteComponent(() => import("./pages/Compare"), "Compare"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes",
    component: lazyRouteComponent(PARTS.Nodes, "Nodes"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/nodes/$node",
    component: lazyRouteComponent(PARTS.Node, "Node"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/queues",
    component: lazyRouteComponent(PARTS.Queues, "Queues"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/queues/$queue",
    component: lazyRouteComponent(PARTS.Queue, "Queue"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/services",
    component: lazyRouteComponent(PARTS.Services, "Services"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/services/$service",
    component: lazyRouteComponent(PARTS.Service, "Service"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/money",
    component: lazyRouteComponent(PARTS.Money, "Money"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/submit",
    component: lazyRouteComponent(PARTS.Submit, "Submit"),
  }),
  createRoute({
    getParentRoute: () => root,
    path: "/plan",
    validateSearch: (search: Record<string, unknown>): PlanSearch => ({
      kind: word(search.kind),
      ask:
        search.ask && typeof search.ask === "object" && !Array.isArray(search.ask)
          ? (search.ask as Record<string, unknown>)
          : undefined,
    }),
    component: lazyRouteComponent(PARTS.Plan, "Plan"),
  }),
] as const;

export const router = createRouter({
  routeTree: root.addChildren(routes),
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
