/** What the pages ask for. A key's first word is what an event renews. */

import {
  keepPreviousData,
  queryOptions,
  type UseQueryResult,
  useInfiniteQuery,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { get, part, Refused } from "./http";
import { whoIsIn } from "./session";
import type {
  EventView,
  FailedJobs,
  GpusNow,
  JobDetail,
  JobView,
  LentReportView,
  NodeDetail,
  Queues,
  ReportView,
  SeriesView,
  ServicesView,
  ServiceView,
  Status,
  Why,
} from "./types";

/** The first rows soon; of who reads on, as many as are answered in a moment. */
export const PAGE = 100;
export const NEXT_PAGE = 1000;
export const FINAL = new Set(["DONE", "FAILED", "CANCELLED"]);

export const session = queryOptions({
  queryKey: ["session"],
  queryFn: whoIsIn,
  retry: false,
  staleTime: 60_000,
});

export const status = queryOptions({
  queryKey: ["status"],
  queryFn: () => get<Status>("/v1/status"),
});

export const useStatus = () => useQuery(status);

const DAY_SECONDS = 86_400;

/** Jobs that failed in the last 24 hours, with the classes of their causes. */
export const useFailures = () =>
  useQuery({
    queryKey: ["jobs", "failures"],
    queryFn: () => {
      const since = Math.floor(Date.now() / 1000) - DAY_SECONDS;
      return get<FailedJobs>("/v1/failures", { since, limit: 8 });
    },
    refetchInterval: 60_000,
  });

/** What an hour of all that is held costs now. */
export const useMoneyRate = () =>
  useQuery({
    queryKey: ["money-rate"],
    queryFn: () => get<GpusNow>("/v1/gpus", { nodes: 0 }),
    refetchInterval: 30_000,
  });

/** How busy the GPUs of each job are on average, of those whose sensors tell. */
export const useBusyOfJobs = () =>
  useQuery({
    queryKey: ["busy-of-jobs"],
    queryFn: () => get<GpusNow>("/v1/gpus"),
    select: busyOfJobs,
    refetchInterval: 30_000,
  });

export function busyOfJobs(now: Pick<GpusNow, "nodes">): Map<string, number> {
  const sums = new Map<string, [number, number]>();
  for (const node of now.nodes)
    for (const [at, holders] of node.holders.entries()) {
      const busy = node.utilisation[at];
      if (busy === null || busy === undefined) continue;
      for (const job of holders.split(",").filter(Boolean)) {
        const [sum, count] = sums.get(job) ?? [0, 0];
        sums.set(job, [sum + busy, count + 1]);
      }
    }
  return new Map([...sums].map(([job, [sum, count]]) => [job, sum / count]));
}

/** The heat of the hottest GPU of each node, in °C. */
export const useHeat = () =>
  useQuery({
    queryKey: ["heat"],
    queryFn: () => get<GpusNow>("/v1/gpus"),
    select: (now) =>
      new Map(
        now.nodes.map((node) => [
          node.node,
          Math.max(...node.temperature_celsius.map((one) => one ?? -1)),
        ]),
      ),
    refetchInterval: 30_000,
  });

export const useQueues = () =>
  useQuery({ queryKey: ["queues"], queryFn: () => get<Queues>("/v1/queues") });

const RATES_MS = 3_000; // rates move without an event

export const useServices = () =>
  useQuery({
    queryKey: ["services"],
    queryFn: () => get<ServicesView>("/v1/services"),
    refetchInterval: RATES_MS,
  });

export const useService = (name: string): UseQueryResult<ServiceView> =>
  useQuery({
    queryKey: ["services", name],
    queryFn: () => get<ServiceView>(`/v1/services/${part(name)}`),
    refetchInterval: RATES_MS,
  });

export interface Filter {
  text: string;
  state: string[];
  owner: string;
  queue: string;
  all: boolean;
  /** Those that ended before this moment are left out. */
  since?: number;
}

/** `first`: rows of the first page. */
export function useJobs(filter: Filter, first = PAGE) {
  return useInfiniteQuery({
    queryKey: ["jobs", filter, first],
    queryFn: ({ pageParam }) =>
      get<{ jobs: JobView[] }>("/v1/jobs", {
        ...filter,
        all: filter.all ? 1 : 0,
        limit: pageParam ? NEXT_PAGE : first,
        before: pageParam,
      }),
    initialPageParam: "",
    getNextPageParam: (page, _, before) =>
      page.jobs.length < (before ? NEXT_PAGE : first) ? undefined : page.jobs.at(-1)?.id,
    placeholderData: keepPreviousData,
  });
}

/** All jobs of an array, by its id or its name. */
export const useArray = (id: string, enabled: boolean) =>
  useQuery({
    queryKey: ["jobs", "array", id],
    queryFn: async () =>
      (await get<{ jobs: JobView[] }>("/v1/jobs", { array: id, all: 1, limit: 10_000 })).jobs,
    enabled,
  });

const ARRAY_ID = /^j\d+(_\d+)?$/;

/** Whether the id is that of an array, which looks as that of a job does; undefined: not known yet.
 * Asked for first, since a browser writes an answer of 404 into its console as an error. */
export function useIsArray(id: string): boolean | undefined {
  const isKnown = useQueryClient().getQueryData([`job:${id}`, "detail"]) !== undefined;
  const asks = ARRAY_ID.test(id) && !isKnown;
  const { data, isError } = useQuery({
    queryKey: ["is-array", id],
    queryFn: async () => {
      const found = await get<{ jobs: JobView[] }>("/v1/jobs", { array: id, all: 1, limit: 1 });
      return found.jobs.length > 0;
    },
    enabled: asks,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return asks && !isError ? data : false;
}

export const useJob = (id: string, enabled = true): UseQueryResult<JobDetail> =>
  useQuery({
    queryKey: [`job:${id}`, "detail"],
    queryFn: () => get<JobDetail>(`/v1/jobs/${part(id)}`),
    enabled,
    refetchInterval: (query) => (FINAL.has(query.state.data?.state ?? "") ? false : 5000),
  });

export const useWhy = (id: string) =>
  useQuery({
    queryKey: [`job:${id}`, "why"],
    queryFn: () => get<Why>(`/v1/jobs/${part(id)}/why`),
    // A forecast moves without an event, and the first one takes a while.
    refetchInterval: (query) => {
      const found = query.state.data;
      if (FINAL.has(found?.state ?? "")) return false;
      return found?.state === "QUEUED" && !found.forecast ? 2000 : 15_000;
    },
  });

export const useJobEvents = (id: string) =>
  useQuery({
    queryKey: [`job:${id}`, "events"],
    queryFn: () => get<{ events: EventView[] }>(`/v1/jobs/${part(id)}/events`),
  });

export const useNode = (id: string): UseQueryResult<NodeDetail> =>
  useQuery({
    queryKey: [`node:${id}`],
    queryFn: () => get<NodeDetail>(`/v1/nodes/${part(id)}`),
    refetchInterval: 10_000,
  });

/** The curves of a key (cluster, node:N, job:J, queue:Q) in a span. `until` null: up to now, and
 * asked for anew as it grows. */
export const seriesOf = (
  key: string,
  since: number,
  fields = "",
  points = 240,
  until: number | null = null,
) =>
  queryOptions({
    queryKey: ["series", key, fields, Math.round(since), until, points],
    queryFn: () => get<SeriesView>("/v1/series", { key, fields, since, until, points }),
    refetchInterval: until === null ? 10_000 : false,
  });

/** Curves of a key since a moment, in at most so many points. */
export const useSeries = (...asked: Parameters<typeof seriesOf>) =>
  useQuery({ ...seriesOf(...asked), placeholderData: keepPreviousData });

/** What the sleeping replicas of services have lent. */
export const useLent = () =>
  useQuery({
    queryKey: ["reports", "lent"],
    queryFn: () => get<LentReportView>("/v1/reports/lent"),
    refetchInterval: 60_000,
  });

export type ReportKind = "usage" | "waste" | "cost" | "goodput";

export const useReport = (kind: ReportKind, by: string, days: number, limit = 200) =>
  useQuery({
    queryKey: ["reports", kind, by, days, limit],
    queryFn: () => {
      const since = Date.now() / 1000 - (days - 1) * 86_400;
      return get<ReportView>(`/v1/reports/${kind}`, { by, since: Math.round(since), limit });
    },
    refetchInterval: 60_000,
    placeholderData: keepPreviousData,
  });

/** The time of one job by its parts, and what would raise its goodput. It is read again when
 * its state has changed, but not with each of its saves. */
export const jobTimeOf = (job: string, state: string) =>
  queryOptions({
    queryKey: ["reports", "time", job, state],
    queryFn: () => get<ReportView>("/v1/reports/goodput", { by: "job", job }),
    refetchInterval: FINAL.has(state) ? false : 30_000,
  });

/** What is asked again: not what was refused. */
export const again = (count: number, error: Error): boolean =>
  count < 3 && !(error instanceof Refused && error.status >= 400 && error.status < 500);
