/** Numbers and times as people read them. */

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** 3 d 4 h, 12 min, 4 s: the two largest units at most. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  for (const [index, [size, unit]] of UNITS.entries()) {
    if (whole < size) continue;
    const main = Math.floor(whole / size);
    const next = UNITS[index + 1];
    const rest = next && main < 10 ? Math.floor((whole % size) / next[0]) : 0;
    return rest && next ? `${main} ${unit} ${rest} ${next[1]}` : `${main} ${unit}`;
  }
  return "0 s";
}

/** A latency in ms or s; – where it is not known. */
export function latency(seconds: number | null): string {
  if (seconds === null) return "–";
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(2)} s`;
}

export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** 1,234 or 0.25: no more digits than tell something. */
export function count(value: number): string {
  const digits = Number.isInteger(value) ? 0 : Math.abs(value) < 10 ? 2 : 1;
  return value.toLocaleString("en-GB", { maximumFractionDigits: digits });
}

export function percent(part: number): string {
  return `${count(Math.round(part * 1000) / 10)} %`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** 2026-11-23, in the reader's time zone, as all times here. */
export function day(seconds: number): string {
  const at = new Date(seconds * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function time(seconds: number): string {
  const at = new Date(seconds * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** The name of the time zone of all times on the pages: GMT+1, or EST. */
export function zone(seconds = Date.now() / 1000): string {
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(
    new Date(seconds * 1000),
  );
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "local time";
}

/** The time of today; of another day with its date. */
export function clock(seconds: number): string {
  const today = day(seconds) === day(Date.now() / 1000);
  return today ? time(seconds) : `${day(seconds)} ${time(seconds).slice(0, 5)}`;
}

/** A time under a curve of that many seconds: with its seconds where that tells more. */
export function tick(seconds: number, span: number): string {
  const text = clock(seconds);
  if (text.length > "00:00:00".length) return text.slice("2026-".length);
  return span < 300 ? text : text.slice(0, -":00".length);
}

/** A time with its date where that is not today's, and its zone. */
export const moment = (seconds: number): string => `${clock(seconds)} ${zone(seconds)}`;

export const full = (seconds: number): string =>
  `${day(seconds)} ${time(seconds)} ${zone(seconds)}`;

const MOMENT = /\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b/g;

/** A sentence of the head, which writes times in UTC, with times as the rest of the page has them. */
export function ownTime(text: string): string {
  return text.replace(MOMENT, (written, date, clocked) => {
    const at = Date.parse(`${date}T${clocked}Z`) / 1000;
    return Number.isNaN(at) ? written : moment(at);
  });
}

export const AMOUNT = /-?[0-9.]+(?:[eE](?:\+|-)?[0-9]+|\s*[kKmMbBtT])?/;

/** What a person writes for a number: 70B, 15T, 1e12. */
export function amount(text: string): number {
  const thousands = "kmbt".indexOf(text.slice(-1).toLowerCase()) + 1;
  return Number(thousands ? `${text.slice(0, -1).trim()}e${3 * thousands}` : text);
}

/** usd_per_gpu_hour becomes: usd per gpu hour, with the words of the trade in capitals. */
export function words(name: string): string {
  const text = name.replaceAll("_", " ");
  const said = text.replace(
    /\b(gpu|usd|pue|kv|gb|mb|tb|qps|kw|lora)(s?)\b/g,
    (_, word, s) =>
      ({
        gb: "GB",
        mb: "MB",
        tb: "TB",
        kw: "kW",
        gpu: "GPU",
        usd: "USD",
        pue: "PUE",
        kv: "KV",
        qps: "QPS",
        lora: "LoRA",
      })[word as string] + s,
  );
  return said.charAt(0).toUpperCase() + said.slice(1);
}

export function plural(number: number, word: string, ending = "s"): string {
  return `${count(number)} ${word}${number === 1 ? "" : ending}`;
}

/** 2 x 8 h100, or what else a job asks of each of its nodes. */
export function shape(one: {
  nodes: number;
  gpus_per_node: number;
  gpu_type: string | null;
  cpus_per_node: number;
}): string {
  const each = one.gpus_per_node
    ? `${count(one.gpus_per_node)} ${one.gpu_type ?? "GPU"}`
    : `${count(one.cpus_per_node)} CPU`;
  return one.nodes === 1 ? each : `${one.nodes} × ${each}`;
}
