/** Money in words: by the cluster's own prices, and at list prices of clouds, never added. */

import type { ReportView } from "../api/types";
import { count } from "./say";

/** For example: 8.67 EUR; 10.8 USD at list prices. Empty: nothing of it has a price. */
export function costOf(report: Pick<ReportView, "columns" | "rows">, name: string): string {
  const row = report.rows.find((one) => one.name === name);
  const value = (column: string) =>
    row?.values[report.columns.findIndex((one) => one.name === column)] ?? 0;
  const currency = report.columns.find((one) => one.name === "money")?.unit ?? "";
  const [own, listed] = [value("money"), value("list price")];
  return [
    own ? `${count(own)} ${currency}` : "",
    listed ? `${count(listed)} USD at list prices` : "",
  ]
    .filter(Boolean)
    .join(" and ");
}
