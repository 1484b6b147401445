/** Stacks of many processes in few lines: ranks that stand at the same place are one entry. */

import type { ProcessStacksView, StackFrameView } from "../api/types";

export interface MergedStack {
  places: string[];
  states: string[];
  frames: StackFrameView[];
}

const STATES: Record<string, string> = {
  D: "waits for a device",
  T: "stopped",
  t: "stopped",
};
const IMPORTS = "<frozen importlib"; // calls with which Python imports a module
const INSTALLED = ["/site-packages/", "/dist-packages/", "/lib/python"];

/** The different stacks of the ranks' main threads; that of the most ranks comes first. */
export function mergeStacks(processes: ProcessStacksView[]): MergedStack[] {
  const groups = new Map<string, ProcessStacksView[]>();
  for (const process of processes) {
    const main = process.role === "rank" && process.threads.find((thread) => thread.is_main);
    if (!main) continue;
    const key = JSON.stringify(main.frames);
    groups.set(key, [...(groups.get(key) ?? []), process]);
  }
  const merged = [...groups].map(([key, group]) => {
    const sorted = group.toSorted((a, b) => order(a) - order(b));
    const frames = JSON.parse(key) as StackFrameView[];
    return {
      first: sorted[0] ? order(sorted[0]) : 0,
      places: sorted.map(placeOf),
      states: [...new Set(sorted.flatMap((process) => STATES[process.state] ?? []))],
      frames: frames.filter((frame) => !frame.file.startsWith(IMPORTS)),
    };
  });
  return merged.toSorted((a, b) => b.places.length - a.places.length || a.first - b.first);
}

function order(process: ProcessStacksView): number {
  return (process.rank ?? -1) * 1000 + (process.local_rank ?? 0);
}

/** Lightning starts all processes of a node with the same RANK. */
function placeOf(process: ProcessStacksView): string {
  if (process.rank === null) return `process ${process.pid}`;
  if (process.local_rank === null || process.has_global_rank) return `rank ${process.rank}`;
  return `rank ${process.rank} (local rank ${process.local_rank})`;
}

/** The path without the folder into which packages are installed. */
export function shortPath(path: string): string {
  for (const folder of INSTALLED) {
    const at = path.lastIndexOf(folder);
    if (at >= 0) return path.slice(at + folder.length);
  }
  return path;
}
