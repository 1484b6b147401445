import { expect, test } from "vitest";
import { costOf } from "./cost";

const columns = [
  { name: "allocated", unit: "GPU-hours" },
  { name: "money", unit: "EUR" },
  { name: "list price", unit: "USD" },
];

test("money has its currency, and two kinds of prices are not added", () => {
  const rows = [
    { name: "own", more: "", values: [1, 8.67, 0] },
    { name: "list", more: "", values: [1, 0, 10.8] },
    { name: "both", more: "", values: [1, 1, 2] },
    { name: "none", more: "", values: [1, 0, 0] },
  ];
  const said = ["own", "list", "both", "none", "gone"].map((one) => costOf({ columns, rows }, one));
  expect(said).toEqual([
    "8.67 EUR",
    "10.8 USD at list prices",
    "1 EUR and 2 USD at list prices",
    "",
    "",
  ]);
});
