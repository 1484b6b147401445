/** The tab of the browser: its title, and a mark in the colour of a state. */

import { useEffect } from "react";

const INKS: Record<string, string> = {
  linked: "#2f6feb",
  warn: "#b7791f",
  good: "#2e9e5b",
  bad: "#d64545",
};
const PLAIN = "/favicon.svg";

/** The brand's mark with a dot in the ink. */
export function markOf(tone: string | undefined): string {
  const ink = INKS[tone ?? ""];
  if (!ink) return PLAIN;
  const svg =
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">' +
    '<g fill="none" stroke="#8a94a6" stroke-width="2" stroke-linecap="round">' +
    '<path d="M4 5v14M12 5v14M20 5v14M2.5 9.5h19M2.5 15h19"/></g>' +
    `<circle cx="16" cy="16" r="8" fill="${ink}"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

export function useTab(title: string, tone?: string | undefined): void {
  useEffect(() => {
    document.title = `${title} · Corral`;
    document.querySelector<HTMLLinkElement>("link[rel=icon]")?.setAttribute("href", markOf(tone));
  }, [title, tone]);
}
