// Numbers as people read and write them: the same grammar and the same three digits as on the
// command line (crates/inbloom-server/src/units.rs reads, crates/inbloom-cli/src/numbers.rs
// prints).

import { language, t } from "./i18n.js";

const UNITS = ["", "k", "M", "G", "T", "P", "E"];

// Three significant digits without an exponent: 0.0067, 9.59, 38.0, 1235.
export function significant(number) {
  const rounded = Number(number.toExponential(2));
  if (rounded === 0 || !Number.isFinite(rounded)) return String(rounded);
  const magnitude = Math.floor(Math.log10(Math.abs(rounded)));
  return number.toFixed(Math.max(0, 2 - magnitude));
}

function scaled(number, space, unit) {
  let value = number;
  let step = 0;
  // What rounds up to the next unit belongs to it: 999,999 is 1 M and not 1000 k.
  while (value >= 999.5 && step + 1 < UNITS.length) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 ? String(Math.round(value)) : significant(value);
  return `${digits}${space}${UNITS[step]}${unit}`;
}

// 1797208 as "1.80 MB".
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  return scaled(number, " ", "B");
}

// 12345678 as "12,345,678".
export function exact(number) {
  return new Intl.NumberFormat(language()).format(number);
}

// A count in the units that the fields take: 1000000 as "1M", 2500000000 as "2.5G".
export function brief(number) {
  return scaled(number, "", "").replace(/\.(\d*?)0+(?=\D*$)/, (_, digits) =>
    digits === "" ? "" : `.${digits}`,
  );
}

// A count for tables: as `brief`, or in the units of Chinese.
export function count(number) {
  if (number === null || number === undefined) return "–";
  if (language() === "zh") return compact(number, "short");
  return brief(number);
}

// A count in a sentence: "10 billion", "100亿".
export function countInWords(number) {
  return number < 1_000_000 ? exact(Math.round(number)) : compact(number, "long");
}

function compact(number, display) {
  const style = { notation: "compact", compactDisplay: display, maximumSignificantDigits: 3 };
  return new Intl.NumberFormat(language(), style).format(number);
}

// A false-positive rate: percent down to what rounds to 0.01%, scientific below.
export function rate(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  if (number < 9.995e-5) return number.toExponential(2);
  return `${significant(number * 100)}%`;
}

// A rate in a sentence: "1 in 10,000".
export function oneIn(number) {
  if (!(number > 0)) return t("number.never");
  const times = 1 / number;
  return t("number.oneIn", {
    count:
      times < 100
        ? significant(times).replace(/\.?0+$/, "")
        : countInWords(Number(times.toPrecision(3))),
  });
}

// A share of a whole: "50.3%".
export function share(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0%";
  if (number >= 0.9995 && number < 1) return "99.9%";
  return `${significant(number * 100)}%`;
}

// So many per second: "0", "3.2", "12.4k".
export function perSecond(number) {
  if (number === null || number === undefined) return "–";
  if (number < 0.05) return "0";
  return number < 100 ? significant(number).replace(/\.0+$/, "") : brief(Math.round(number));
}

// A span of time in its two largest units: "3 d 4 h", "12 min", "820 ms".
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.000995) return `${significant(seconds * 1e6)} µs`;
  if (seconds < 0.0995) return `${significant(seconds * 1000)} ms`;
  if (seconds < 10) return t("time.s", { s: significant(seconds).replace(/\.?0+$/, "") });
  const units = [
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  let rest = Math.round(seconds);
  const parts = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const whole = Math.floor(rest / size);
    if (whole > 0) parts.push(t(`time.${name}`, { [name]: exact(whole) }));
    rest -= whole * size;
  }
  return parts.join(" ");
}

// A moment: the time of day if it is near, the date too if it is not.
export function moment(milliseconds, now = Date.now()) {
  const isNear = Math.abs(milliseconds - now) < 20 * 3600 * 1000;
  const style = isNear
    ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
    : {
        weekday: "short",
        month: "short",
        day: "numeric",
        hour: "2-digit",
        minute: "2-digit",
        hourCycle: "h23",
      };
  if (Math.abs(milliseconds - now) > 300 * 86_400 * 1000)
    Object.assign(style, { year: "numeric", weekday: undefined });
  return new Intl.DateTimeFormat(language(), style).format(milliseconds);
}
