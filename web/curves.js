// The two curves of a plan: its rate as keys arrive, and its memory for lower rates.

import { chart } from "./charts.js";
import { h } from "./dom.js";
import { kindName, t } from "./i18n.js";
import { bytes, count, countInWords, exact, rate } from "./numbers.js";

// Draws both, with the chosen point, or nothing where a plan has no rate.
export function curves(answer, row) {
  const { curves: data } = answer;
  if (!data || row.items === null || row.rate === 0) return null;
  const kind = kindName(row.kind);
  return h("div", { class: "pair" }, rateChart(data, row, kind), sizeChart(data, row, kind));
}

function rateChart(data, row, kind) {
  const points = data.rate_by_keys.map(({ items, rate: value }) => [items, value]);
  const shown = points.map(([, value]) => value).filter((value) => value > 0);
  if (shown.length === 0) return null;
  // Below a thousandth of the target nothing is worth the room.
  const low = Math.max(Math.min(...shown), data.point.rate * 1e-3);
  const most = Math.min(1, Math.max(...shown, data.point.rate * 2));
  const isFull = data.rate_by_keys.some(({ rate: value }) => value === null);
  return h(
    "div",
    { class: "card" },
    chart({
      title: t("chart.rateByKeys"),
      sentence: t("chart.rateByKeys.says", {
        kind,
        keys: countInWords(data.point.items),
        rate: rate(data.point.rate),
        twice: isFull ? t("chart.full") : rate(points.at(-1)[1]),
      }),
      note: kind,
      x: { scale: "linear", from: 0, to: data.rate_by_keys.at(-1).items, format: count },
      y: {
        scale: "log",
        from: 10 ** Math.floor(Math.log10(low)),
        to: 10 ** Math.ceil(Math.log10(most)),
        format: shortRate,
      },
      left: 58,
      series: [
        {
          name: kind,
          tone: "a",
          filled: true,
          points: points.map(([items, value]) => [items, value >= low ? value : null]),
        },
      ],
      guides: [{ y: data.point.rate, label: t("chart.target") }],
      point: {
        x: data.point.items,
        y: data.point.rate,
        label: `${count(data.point.items)} · ${rate(data.point.rate)}`,
      },
      table: {
        head: [t("column.keys"), t("column.rate")],
        rows: data.rate_by_keys
          .filter((_, index) => index % 5 === 0)
          .map((point) => [
            exact(Math.round(point.items)),
            point.rate === null ? t("chart.full") : rate(point.rate),
          ]),
      },
    }),
  );
}

function sizeChart(data, row, kind) {
  const points = data.bytes_by_rate.map(({ rate: value, bytes: size }) => [value, size]);
  if (points.length < 2) return null;
  const sizes = points.map(([, size]) => size);
  const rates = points.map(([value]) => value);
  return h(
    "div",
    { class: "card" },
    chart({
      title: t("chart.bytesByRate"),
      sentence: t("chart.bytesByRate.says", {
        kind,
        keys: countInWords(data.point.items),
        rate: rate(data.point.rate),
        size: bytes(data.point.bytes),
      }),
      note: t("chart.keys", { keys: countInWords(data.point.items) }),
      // From frequent errors at the left to rare ones at the right.
      x: { scale: "log", from: Math.max(...rates), to: Math.min(...rates), format: shortRate },
      y: { scale: "linear", from: 0, to: Math.max(...sizes) * 1.08, format: bytes },
      left: 66,
      series: [{ name: kind, tone: "a", filled: true, points }],
      point: {
        x: data.point.rate,
        y: data.point.bytes,
        label: `${rate(data.point.rate)} · ${bytes(data.point.bytes)}`,
      },
      table: {
        head: [t("column.rate"), t("column.memory")],
        rows: data.bytes_by_rate
          .filter((_, index) => index % 4 === 0)
          .map((point) => [rate(point.rate), bytes(point.bytes)]),
      },
    }),
  );
}

// A rate on an axis: 10%, 0.1%, 1e-6.
function shortRate(value) {
  if (value >= 0.0001) return `${Number((value * 100).toPrecision(3))}%`;
  return value.toExponential(0);
}
