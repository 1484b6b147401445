/** Light, dark, or as the machine is set; kept in this browser. */

const KEY = "corral-theme";
export type Theme = "system" | "light" | "dark";
const ORDER: Theme[] = ["system", "light", "dark"];

export function theme(): Theme {
  const kept = localStorage.getItem(KEY) as Theme | null;
  return kept && ORDER.includes(kept) ? kept : "system";
}

export function applyTheme(): void {
  const chosen = theme();
  document.documentElement.style.colorScheme = chosen === "system" ? "" : chosen;
}

export function nextTheme(): Theme {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? "system";
  localStorage.setItem(KEY, next);
  applyTheme();
  return next;
}
