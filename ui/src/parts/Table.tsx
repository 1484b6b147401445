/** Tables. On a phone, a table that holds sentences or many columns is a stack: each cell below the
 * other, under its name, so that nothing is cut at the edge. */

import type { ReactNode } from "react";
import { Scroll } from "./basic";

export interface Column<Row> {
  name: string;
  /** Classes of its cells: number, tight, wide (a sentence), soft and so on. */
  look?: string | ((row: Row) => string);
  /** What its head shows in place of the name. */
  head?: ReactNode;
  title?: string;
  sorted?: "ascending" | "descending" | undefined;
  /** The content of a cell. Null or "": there is nothing to say. */
  of: (row: Row) => ReactNode;
}

interface Props<Row> {
  /** What the rows are, for those who cannot see it. */
  of: string;
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  columns: readonly Column<Row>[];
  titleOf?: (row: Row) => string;
}

/** Columns of numbers that a phone has room for. */
const FEW = 5;

const isWide = <Row,>({ look }: Column<Row>): boolean =>
  typeof look === "string" && look.split(" ").includes("wide");

export function Table<Row>({ of, rows, keyOf, columns, titleOf }: Props<Row>) {
  return (
    <Scroll of={of}>
      <table className={columns.length > FEW || columns.some(isWide) ? "stacks" : undefined}>
        <thead>
          <tr>
            {columns.map((one) => (
              <th
                key={one.name}
                className={
                  typeof one.look === "string" && one.look.includes("number") ? "number" : undefined
                }
                title={one.title}
                aria-sort={one.sorted}
              >
                {one.head ?? one.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} title={titleOf?.(row)}>
              {columns.map((one) => (
                <Cell key={one.name} column={one} row={row} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Cell<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  const { name, look, of } = column;
  const content = of(row);
  const isEmpty = content === null || content === undefined || content === "";
  return (
    <td
      className={typeof look === "function" ? look(row) : look}
      data-name={name}
      data-empty={isEmpty || undefined}
    >
      {isEmpty ? "–" : content}
    </td>
  );
}
