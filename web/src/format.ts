// Numbers and names for people, as the command line prints them: `isotherm_units::Bytes`, `isotherm_units::human` and
// `isotherm_view::human` in TypeScript. The same figure must look the same in a terminal and here, so a change there
// is a change here; unit tests hold the worked examples of both.

const BYTE_UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;

/** `512 B`, `4.0 KiB`, `1.5 GiB`. */
export function bytes(count: number): string {
  if (count < 1024) return `${Math.round(count)} B`;
  let value = count / 1024;
  let unit = 0;
  // 999.95 would print as 1000.0: move up a unit before the rounding does.
  while (value >= 999.95 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)} ${BYTE_UNITS[unit] ?? ""}`;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Milliseconds of a unit, its name, and the value at which the next unit takes over. */
const TIME_UNITS: readonly (readonly [number, string, number])[] = [
  [1e-3, "us", 1000],
  [1, "ms", 1000],
  [SECOND, "s", 60],
  [MINUTE, "min", 60],
  [HOUR, "h", 24],
  [DAY, "d", Infinity],
];

/** A duration with two digits in the unit that fits: `350 us`, `12 ms`, `3.4 s`, `2 min`, `5 h`, `38 d`. */
export function duration(ms: number): string {
  if (ms <= 0) return "0 s";
  for (const [unit, name, limit] of TIME_UNITS) {
    const value = ms / unit;
    // Compares the rounded value, so that 59.7 s prints as 1 min and not as 60 s.
    if (value < limit - 0.5) return `${twoDigits(value)} ${name}`;
  }
  return "";
}

function twoDigits(value: number): string {
  const tenths = value.toFixed(1);
  if (tenths.endsWith(".0")) return tenths.slice(0, -2);
  return value >= 9.95 ? value.toFixed(0) : tenths;
}

/** Percent without the sign: `12`, `3.4`, `0.05`, `0`. */
export function percent(value: number): string {
  if (!(value > 0)) return "0";
  if (value < 0.01) return "<0.01";
  if (value < 0.995) return value.toFixed(2);
  return value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

/** A share from 0 to 1 as `0.1%`, `4.6%`, `100%`: as the legends of heat maps have it. */
export function share(value: number): string {
  if (!(value > 0)) return "0%";
  const part = value * 100;
  const text = part.toFixed(part < 0.0995 ? 2 : part < 9.95 ? 1 : 0);
  return `${text.endsWith(".0") ? text.slice(0, -2) : text}%`;
}

/** Accesses per second, without a unit: `123`, `12.3`, `0.12`, `0.004`, `<0.001`, `0`. */
export function rate(hz: number): string {
  if (!(hz > 0)) return "0";
  if (hz >= 99.95) return hz.toFixed(0);
  if (hz >= 0.995) return hz.toFixed(1);
  if (hz >= 0.00995) return hz.toFixed(2);
  return hz >= 0.001 ? hz.toFixed(3) : "<0.001";
}

/** The time of day in UTC: `12:00:03`. */
export function clock(atMs: number): string {
  return new Date(atMs).toISOString().slice(11, 19);
}

/** A moment in UTC: `2026-08-21 12:00:03`. */
export function utc(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 19).replace("T", " ");
}

/** `1 process`, `2 processes`. */
export function counted(n: number, one: string, many: string): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

const DECEPTIVE = /[\p{Cc}\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** Replaces what could reorder text or be invisible. Names come from the monitored processes. */
export function printable(name: string): string {
  return name.replace(DECEPTIVE, "\ufffd");
}

/** The name of a mapping: printable, and `(anon)` if it has none. */
export function mappingName(name: string): string {
  return name === "" ? "(anon)" : printable(name);
}
