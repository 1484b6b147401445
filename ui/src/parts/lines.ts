/** Lines of several ranks in one text. */

interface Marker {
  /** The lines that have ended with this piece; what is left of one waits for its rest. */
  take: (rank: number | null, data: string) => string;
  /** What has not ended, where nothing more comes. */
  rest: () => string;
}

/** Each line with its rank before it: pieces of ranks come as they are printed, cut anywhere. */
export function marker(): Marker {
  const open = new Map<number | null, string>();
  const said = (rank: number | null, line: string) => (rank === null ? line : `[${rank}] ${line}`);
  return {
    take: (rank, data) => {
      const lines = ((open.get(rank) ?? "") + data).split("\n");
      open.set(rank, lines.pop() ?? "");
      return lines.map((line) => `${said(rank, line)}\n`).join("");
    },
    rest: () =>
      [...open]
        .filter(([, line]) => line)
        .map(([rank, line]) => `${said(rank, line)}\n`)
        .join(""),
  };
}
