// Charts in SVG: lines on linear, logarithmic and time axes, meters, bars and a strip of heat.
//
// Every chart has a sentence that says what it shows, for readers who do not see it, and its
// numbers in a table below. A plot draws itself anew when its width changes.

import { h, s, show } from "./dom.js";
import { language, t } from "./i18n.js";
import { significant } from "./numbers.js";

const MARGIN = { top: 14, right: 14, bottom: 26, left: 52 };

// A figure with a title, a plot and its numbers.
//
// `x` and `y` are axes: { scale: 'linear' | 'log' | 'time', from, to, format }, and `isWhole` where
// ticks are whole numbers. `series` are lines:
// { name, points: [[x, y or null], ...], tone, filled }. `guides` are lines across: { y or x, label
// }. `point` is the one that was chosen: { x, y, label }.
export function chart({ title, sentence, note, table, ...plot }) {
  return h(
    "figure",
    { class: "chart" },
    h(
      "figcaption",
      null,
      h("span", { class: "chart-title" }, title),
      note ? h("span", { class: "chart-note" }, note) : null,
    ),
    plot.series.length > 1 ? legend(plot.series) : null,
    selfDrawing(drawLines, { ...plot, label: `${title}. ${sentence}` }),
    table ? numbersOf(title, table) : null,
  );
}

function legend(series) {
  return h(
    "ul",
    { class: "legend", "aria-hidden": "true" },
    series.map((line) => h("li", { class: `tone-${line.tone}` }, line.name)),
  );
}

// The numbers of a chart as a table that is closed at first.
export function numbersOf(title, { head, rows }) {
  return h(
    "details",
    { class: "numbers" },
    h("summary", null, t("chart.numbers"), h("span", { class: "offscreen" }, `: ${title}`)),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h(
        "table",
        null,
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            head.map((cell) => h("th", { scope: "col" }, cell)),
          ),
        ),
        h(
          "tbody",
          null,
          rows.map((row) =>
            h(
              "tr",
              null,
              row.map((cell, index) =>
                index === 0 ? h("th", { scope: "row" }, cell) : h("td", null, cell),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

// A box that calls `draw(box, data, width)` now, when its data change and when its width does.
function selfDrawing(draw, data) {
  const box = h("div", { class: "plot" });
  let width = 0;
  box.bloomData = data;
  box.bloomUpdate = (newData) => {
    box.bloomData = newData;
    if (width > 0) draw(box, newData, width);
  };
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    box.bloomUpdate(box.bloomData);
  }).observe(box);
  return box;
}

function drawLines(box, data, width) {
  const height = data.height ?? 220;
  const left = data.left ?? MARGIN.left;
  const area = {
    left,
    top: MARGIN.top,
    right: width - MARGIN.right,
    bottom: height - MARGIN.bottom,
  };
  const x = toScale(data.x, area.left, area.right, Math.max(2, Math.floor(width / 90)));
  const y = toScale(data.y, area.bottom, area.top, 5);
  const inside = (value) => Math.min(area.bottom, Math.max(area.top, y.place(value)));
  const lines = data.series.map((line) => ({ ...line, path: path(line.points, x.place, inside) }));
  const nearest = nearestIn(data, x, y, inside);
  show(
    box,
    s(
      "svg",
      { role: "img", "aria-label": data.label, width, height, viewBox: `0 0 ${width} ${height}` },
      y.ticks.map((tick) => [
        s("line", {
          class: "grid",
          x1: area.left,
          x2: area.right,
          y1: y.place(tick),
          y2: y.place(tick),
        }),
        s(
          "text",
          { class: "tick", x: area.left - 8, y: y.place(tick) + 4, "text-anchor": "end" },
          data.y.format(tick),
        ),
      ]),
      x.ticks.map((tick) =>
        s(
          "text",
          {
            class: "tick",
            x: x.place(tick),
            y: height - 6,
            "text-anchor": anchor(x.place(tick), area),
          },
          data.x.format(tick),
        ),
      ),
      lines
        .filter((line) => line.filled)
        .map((line) =>
          s("path", {
            class: `area tone-${line.tone}`,
            d: areaPath(line.points, x.place, inside, area.bottom),
          }),
        ),
      (data.guides ?? []).map((guide) => drawGuide(guide, x, inside, area)),
      lines.map((line) =>
        s("path", {
          class: `line tone-${line.tone}`,
          d: line.path,
        }),
      ),
      data.point ? drawPoint(data.point, x, inside, area) : null,
      s("g", { class: "cursor" }),
    ),
    h("div", { class: "tip", hidden: true }),
  );
  box.onpointermove = (event) => moveCursor(box, event, nearest, area, data);
  box.onpointerleave = () => hideCursor(box);
}

const anchor = (place, area) =>
  place < area.left + 24 ? "start" : place > area.right - 24 ? "end" : "middle";

function drawGuide(guide, x, place, area) {
  if (guide.x !== undefined) {
    const at = x.place(guide.x);
    return [
      s("line", { class: "guide", x1: at, x2: at, y1: area.top, y2: area.bottom }),
      s("text", { class: "guide-label", x: at + 5, y: area.top + 10 }, guide.label),
    ];
  }
  const at = place(guide.y);
  const above = at > area.top + 16;
  return [
    s("line", { class: "guide", x1: area.left, x2: area.right, y1: at, y2: at }),
    s("text", { class: "guide-label", x: area.left + 6, y: above ? at - 5 : at + 13 }, guide.label),
  ];
}

function drawPoint(point, x, place, area) {
  const [cx, cy] = [x.place(point.x), place(point.y)];
  const atRight = cx > (area.left + area.right) / 2;
  const above = cy > area.top + 24;
  return s(
    "g",
    { class: "point" },
    s("line", { class: "drop", x1: cx, x2: cx, y1: cy, y2: area.bottom }),
    s("circle", { cx, cy, r: 5.5 }),
    point.label
      ? s(
          "text",
          {
            x: cx + (atRight ? -11 : 11),
            y: cy + (above ? -9 : 18),
            "text-anchor": atRight ? "end" : "start",
          },
          point.label,
        )
      : null,
  );
}

function path(points, x, y) {
  let text = "";
  let isPenUp = true;
  for (const [at, value] of points) {
    if (value === null || value === undefined) {
      isPenUp = true;
      continue;
    }
    const place = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A line to where it begins is a dot: a lone point is visible too.
    text += isPenUp ? `M${place}L${place}` : `L${place}`;
    isPenUp = false;
  }
  return text;
}

function areaPath(points, x, y, floor) {
  const runs = [];
  let run = [];
  for (const point of [...points, [0, null]]) {
    if (point[1] !== null && point[1] !== undefined) {
      run.push(point);
    } else if (run.length > 0) {
      runs.push(run);
      run = [];
    }
  }
  return runs
    .map(
      (part) =>
        `${path(part, x, y)}L${x(part.at(-1)[0]).toFixed(1)} ${floor}L${x(part[0][0]).toFixed(1)} ${floor}Z`,
    )
    .join("");
}

// The points of all lines that are nearest to a place on the x axis.
function nearestIn(data, x, y, place) {
  return (at) => {
    let best = null;
    for (const line of data.series) {
      for (const [px, py] of line.points) {
        if (py === null || py === undefined) continue;
        const distance = Math.abs(x.place(px) - at);
        if (best === null || distance < best.distance) best = { distance, px };
      }
    }
    if (best === null) return null;
    const values = data.series.map((line) => ({
      line,
      value: line.points.find(([px]) => px === best.px)?.[1],
    }));
    return {
      px: best.px,
      left: x.place(best.px),
      values: values
        .filter(({ value }) => value !== null && value !== undefined)
        .map((entry) => ({ ...entry, top: place(entry.value) })),
    };
  };
}

function moveCursor(box, event, nearest, area, data) {
  const bounds = box.getBoundingClientRect();
  const found = nearest(event.clientX - bounds.left);
  const tip = box.querySelector(".tip");
  if (!found) {
    hideCursor(box);
    return;
  }
  box
    .querySelector(".cursor")
    .replaceChildren(
      s("line", { x1: found.left, x2: found.left, y1: area.top, y2: area.bottom }),
      ...found.values.map(({ line, top }) =>
        s("circle", { class: `tone-${line.tone}`, cx: found.left, cy: top, r: 3.5 }),
      ),
    );
  tip.replaceChildren(
    h("strong", null, data.x.format(found.px)),
    ...found.values.map(({ line, value }) =>
      h("span", { class: `tone-${line.tone}` }, `${line.name} ${data.y.format(value)}`),
    ),
  );
  tip.hidden = false;
  const isLeft = found.left > bounds.width / 2;
  tip.style.setProperty("left", isLeft ? "auto" : `${found.left + 12}px`);
  tip.style.setProperty("right", isLeft ? `${bounds.width - found.left + 12}px` : "auto");
}

function hideCursor(box) {
  box.querySelector(".tip").hidden = true;
  box.querySelector(".cursor").replaceChildren();
}

// From values to places, with the values at which an axis has a tick.
function toScale(axis, start, end, most) {
  const { from, to } = axis;
  if (axis.scale === "log") {
    const [low, high] = [Math.log10(from), Math.log10(to)];
    const place = (value) =>
      start + ((Math.log10(Math.max(value, 1e-300)) - low) / (high - low || 1)) * (end - start);
    return { place, ticks: logTicks(low, high, most) };
  }
  const place = (value) => start + ((value - from) / (to - from || 1)) * (end - start);
  return {
    place,
    ticks: axis.scale === "time" ? timeTicks(from, to, most) : linearTicks(axis, most),
  };
}

function logTicks(low, high, most) {
  const [first, last] = [Math.min(low, high), Math.max(low, high)];
  const step = Math.max(1, Math.ceil((last - first) / most));
  const ticks = [];
  for (let power = Math.ceil(first - 1e-9); power <= last + 1e-9; power += step)
    ticks.push(Number(`1e${power}`));
  return ticks;
}

function linearTicks({ from, to, isWhole }, most) {
  const raw = (to - from) / most || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const fair = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= raw);
  const step = isWhole ? Math.ceil(fair) : fair;
  const ticks = [];
  for (let index = Math.ceil(from / step); index * step <= to * (1 + 1e-9); index += 1)
    ticks.push(index * step);
  return ticks;
}

const MINUTE = 60_000;
const TIME_STEPS = [1, 5, 15, 30, 60, 180, 360, 720, 1440, 10_080].map(
  (minutes) => minutes * MINUTE,
);

function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((candidate) => (to - from) / candidate <= most) ?? TIME_STEPS.at(-1);
  // In local time, so that hours are whole where time zones are not.
  const offset = new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step)
    ticks.push(at);
  return ticks;
}

// The time of day on an axis.
export function clockTime(milliseconds) {
  return new Intl.DateTimeFormat(language(), {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  }).format(milliseconds);
}

// How far something is towards its limit, as a bar. `level` is one of ok, warn and bad.
export function meter(value, level, label) {
  const percent = Math.max(0, Math.min(100, value * 100));
  return h(
    "div",
    { class: `meter ${level}`, role: "img", "aria-label": label },
    percent > 0
      ? h("div", { class: "meter-bar", style: { width: `${percent.toFixed(2)}%` } })
      : null,
  );
}

// How evenly an array is filled: a cell for each slice, the darker the fuller. Slices that chance
// does not explain are marked.
export function heatStrip(slices, standsOut, expected, label) {
  const width = 1000 / slices.length;
  // The contrast is around the expected fill: a difference of a tenth of it is visible.
  const shade = (fill) => Math.min(1, Math.max(0.06, 0.5 + (fill / (expected || 1) - 1) * 2));
  return s(
    "svg",
    {
      class: "heat",
      role: "img",
      "aria-label": label,
      viewBox: "0 0 1000 40",
      preserveAspectRatio: "none",
    },
    slices.map((fill, index) =>
      s("rect", {
        class: standsOut.includes(index) ? "stands-out" : null,
        x: (index * width).toFixed(2),
        y: 0,
        width: (width + 0.4).toFixed(2),
        height: 40,
        "fill-opacity": (expected > 0 ? shade(fill) : 0.06).toFixed(3),
      }),
    ),
  );
}

// Where in the array the bits of a key are: a mark for each, filled if the bit is set.
export function positionStrip(positions, cells, label) {
  return s(
    "svg",
    {
      class: "strip",
      role: "img",
      "aria-label": label,
      viewBox: "0 0 1000 28",
      preserveAspectRatio: "none",
    },
    s("rect", { class: "strip-room", x: 0, y: 8, width: 1000, height: 12, rx: 2 }),
    positions.map(({ position, set }) =>
      s("rect", {
        class: set ? "set" : "unset",
        x: ((position / cells) * 992).toFixed(2),
        y: 2,
        width: 8,
        height: 24,
      }),
    ),
  );
}

// One cache line of 512 bits, with the bits of a key in it.
export function lineGrid(bits, label) {
  const marks = new Map(bits.map(({ bit, set }) => [bit, set ? "set" : "unset"]));
  return s(
    "svg",
    { class: "line-grid", role: "img", "aria-label": label, viewBox: "-1 -1 642 82" },
    Array.from({ length: 512 }, (_, bit) =>
      s("rect", {
        class: marks.get(bit) ?? null,
        x: (bit % 64) * 10 + 1,
        y: Math.floor(bit / 64) * 10 + 1,
        width: 8,
        height: 8,
        rx: 1.5,
      }),
    ),
  );
}

// The ends of a linear axis that shows all values, from zero.
export function fromZero(values, least) {
  const most = Math.max(least, ...values.filter((value) => value !== null && value !== undefined));
  return { scale: "linear", from: 0, to: Number(significant(most * 1.12)) };
}
