// The last 15 minutes or 24 hours of one filter: traffic, hits, keys and rate as charts.

import { ask } from "./api.js";
import { chart, clockTime, fromZero } from "./charts.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { count, countInWords, exact, perSecond, rate, share } from "./numbers.js";

// Points that a chart draws at most; more samples are averaged.
const POINTS = 240;
// Samples that the server keeps.
const MOST = { "15m": 900, "24h": 1440 };

// Loads all samples at first, then only those that are new.
export async function loadHistory(state, address, signal) {
  const wanted = state.span;
  const old = state.history;
  // A sample of 24 hours comes once a minute.
  if (old && wanted === "24h" && Date.now() - old.loaded < 20_000) return;
  const request = address("/history", { span: wanted, since: old ? old.next : null });
  const news = await ask(request, { signal }).catch((error) => {
    // Too many filters are looked at just now: the next second will do.
    if (error.code === "refused") return null;
    throw error;
  });
  if (news === null || wanted !== state.span) return;
  const names = ["added", "asked", "hits", "keys", "rate"];
  const continues = old && news.first === old.next;
  const joined = (name) => (continues ? [...old[name], ...news[name]] : news[name]);
  const series = names.map((name) => [name, joined(name).slice(-MOST[wanted])]);
  state.history = {
    ...Object.fromEntries(series),
    next: news.next,
    time: news.time,
    step: news.step_seconds,
    span: wanted,
    loaded: Date.now(),
  };
}

// The charts, and the switch between the two spans.
export function historySection(state, filter, { setSpan }) {
  const spans = h(
    "div",
    { class: "segments", role: "group", "aria-label": t("filter.span") },
    ["15m", "24h"].map((name) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(state.span === name),
          on: { click: () => setSpan(name) },
        },
        t(`span.${name}`),
      ),
    ),
  );
  const past = state.history;
  return h(
    "section",
    { class: "history", "aria-labelledby": "history-title" },
    h(
      "div",
      { class: "section-head" },
      h("h2", { id: "history-title" }, t("filter.history")),
      spans,
    ),
    past?.added.length
      ? charts(past, filter)
      : h("div", { class: "card loading" }, t(past ? "filter.noSamples" : "shell.loading")),
    h("p", { class: "quiet" }, t("filter.historyNote")),
  );
}

// The lines of all charts: averages of bins, so that each has at most POINTS points.
function linesOf(past) {
  const samples = past.added.length;
  const [end, step] = [past.time * 1000, past.step * 1000];
  const most = MOST[past.span];
  const bin = Math.ceil(most / POINTS);
  // A bin begins at a multiple of its size whatever the first sample is: otherwise each new sample
  // would move all bins, and the line would flicker.
  const first = past.next - samples;
  const begin = (bin - (first % bin)) % bin;
  const binned = (value) => {
    const points = [];
    for (let from = begin; from + bin <= samples; from += bin) {
      const time = end - (samples - from - bin) * step;
      points.push([time, value((name) => past[name].slice(from, from + bin).filter(isNumber))]);
    }
    return points;
  };
  const mean = (values) => (values.length === 0 ? null : sum(values) / values.length);
  const perSecondOf = (name) =>
    binned((values) => {
      const count = mean(values(name));
      return count === null ? null : count / past.step;
    });
  return {
    x: { scale: "time", from: end - (most - 1) * step, to: end, format: clockTime },
    added: perSecondOf("added"),
    asked: perSecondOf("asked"),
    hits: binned((values) => {
      const asked = sum(values("asked"));
      return asked > 0 ? Math.min(1, sum(values("hits")) / asked) : null;
    }),
    keys: binned((values) => values("keys").at(-1) ?? null),
    rates: binned((values) => values("rate").at(-1) ?? null),
  };
}

const isNumber = (value) => value !== null;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const valuesOf = (...lines) => lines.flat().map(([, value]) => value);
const latest = (points) => points.findLast(([, value]) => value !== null)?.[1] ?? null;

// Every tenth point as a row, the newest first.
function tableOf(head, lines, format) {
  const cell = (value) => (value === null ? "–" : format(value));
  const rows = lines[0].map(([time], index) => [
    clockTime(time),
    ...lines.map((line) => cell(line[index][1])),
  ]);
  return {
    head: [t("filter.time"), ...head],
    rows: rows.reverse().filter((_, at) => at % 10 === 0),
  };
}

function charts(past, filter) {
  const lines = linesOf(past);
  const all = [
    trafficChart(lines),
    hitsChart(lines),
    keysChart(lines, filter),
    rateChart(lines, filter),
  ];
  return h(
    "div",
    { class: "pair" },
    all.map((options) =>
      h("div", { class: "card" }, chart({ height: 180, x: lines.x, ...options })),
    ),
  );
}

function trafficChart({ added, asked }) {
  const [queries, adds] = [t("chart.queries"), t("chart.adds")];
  const now = { added: perSecond(latest(added)), asked: perSecond(latest(asked)) };
  return {
    title: t("chart.traffic"),
    note: t("filter.perSecond"),
    sentence: t("chart.traffic.says", now),
    y: { ...fromZero(valuesOf(added, asked), 5), isWhole: true, format: perSecond },
    series: [
      { name: queries, tone: "a", filled: true, points: asked },
      { name: adds, tone: "b", points: added },
    ],
    table: tableOf([queries, adds], [asked, added], perSecond),
  };
}

function hitsChart({ hits }) {
  const now = latest(hits);
  const title = t("chart.hits");
  return {
    title,
    note: t("chart.hits.note"),
    sentence: now === null ? t("filter.noQueries") : t("filter.hitShare", { share: share(now) }),
    y: { scale: "linear", from: 0, to: 1, format: (value) => `${Math.round(value * 100)}%` },
    series: [{ name: title, tone: "a", filled: true, points: hits }],
    table: tableOf([title], [hits], share),
  };
}

function keysChart({ keys }, { keys: now, capacity, used }) {
  const title = t("chart.keysOverTime");
  // A capacity that is far away would press the line to the ground.
  const isNear = capacity && used > 0.5;
  return {
    title,
    sentence: t("chart.keysOverTime.says", { keys: countInWords(now), used: share(used) }),
    y: { ...fromZero([...valuesOf(keys), isNear ? capacity : 0], 10), isWhole: true, format: count },
    series: [{ name: title, tone: "a", filled: true, points: keys }],
    guides: isNear ? [{ y: capacity, label: t("chart.capacity") }] : [],
    table: tableOf([title], [keys], exact),
  };
}

function rateChart({ rates }, { rate: now, target_rate: target }) {
  const title = t("chart.rateOverTime");
  return {
    title,
    left: 60,
    sentence: t("chart.rateOverTime.says", { rate: rate(now), target: rate(target) }),
    y: { ...fromZero([...valuesOf(rates), target ?? 0], 1e-9), format: rate },
    series: [{ name: title, tone: "a", filled: true, points: rates }],
    guides: target ? [{ y: target, label: t("chart.target") }] : [],
    table: tableOf([title], [rates], rate),
  };
}
