import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let now = Math.floor(Date.now() / 1000);
let timer: number | undefined;

function tick(): void {
  now = Math.floor(Date.now() / 1000);
  for (const listener of listeners) listener();
}

/** Seconds since 1970, anew each second. */
export function useNow(): number {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      timer ??= window.setInterval(tick, 1000);
      return () => {
        listeners.delete(listener);
        if (!listeners.size) {
          window.clearInterval(timer);
          timer = undefined;
        }
      };
    },
    () => now,
  );
}
