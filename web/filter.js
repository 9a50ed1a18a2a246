// One filter, live: is it full, is it right often enough, how fast is it used, and a box to test a
// key.

import { ask, poll, withParameters } from "./api.js";
import { heatStrip, lineGrid, meter, numbersOf, positionStrip } from "./charts.js";
import { h } from "./dom.js";
import { historySection, loadHistory } from "./history.js";
import { hasText, kindName, rich, t } from "./i18n.js";
import {
  bytes,
  count,
  countInWords,
  exact,
  moment,
  perSecond,
  rate,
  share,
  span,
} from "./numbers.js";

const REFRESH = 1000;
// The bits of a cache line, which is a block of a blocked filter.
const LINE = 512;

// Makes the screen of the filter with this path, as the server wrote it.
export function filterScreen(app, path) {
  const db = app.params.db ?? "";
  const state = {
    filter: null,
    error: null,
    span: app.params.span === "24h" ? "24h" : "15m",
    history: null,
    key: "",
    outcome: null,
    isBusy: false,
  };
  const address = (rest, parameters = {}) =>
    withParameters(`filters/${path}${rest}`, { db, ...parameters });
  const load = async (signal) => {
    try {
      state.filter = await ask(address(""), { signal });
      await loadHistory(state, address, signal);
      state.error = null;
      app.heard();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      state.error = error;
      app.failed(error);
    }
    app.refresh();
  };
  const polling = poll(load, REFRESH);
  const setSpan = (name) => {
    Object.assign(state, { span: name, history: null });
    app.setParams({ db, span: name === "15m" ? "" : name });
    polling.now();
    app.refresh();
  };
  const act = async (action) => {
    const key = state.key;
    state.isBusy = true;
    app.refresh();
    try {
      const answer = action === "add" ? await ask(address("/add"), { body: { key } }) : null;
      const test = await ask(address("/test", { key }));
      state.outcome = { action, key, answer, test };
    } catch (error) {
      state.outcome = { action, key, error };
      if (error.status === 401) app.failed(error);
    }
    state.isBusy = false;
    polling.now();
    app.refresh();
  };
  return {
    title: () => state.filter?.name ?? t("filters.title"),
    stop: polling.stop,
    view: () => view(app, state, { setSpan, act }),
  };
}

function view(app, state, actions) {
  const { filter } = state;
  const back = h("a", { class: "back", href: app.link("filters") }, t("filter.back"));
  if (!filter) {
    const isMissing = state.error?.status === 404;
    return h(
      "div",
      null,
      back,
      h(
        "div",
        { class: "card empty", "aria-busy": state.error ? null : "true" },
        h("h1", null, isMissing ? t("filter.missing") : t("shell.loading")),
        isMissing ? h("p", null, t("filter.missingText")) : null,
      ),
    );
  }
  return h(
    "div",
    { class: `filter${state.error ? " stale" : ""}` },
    back,
    head(filter),
    state.error?.status === 404
      ? h("div", { class: "notice bad", role: "alert" }, t("filter.gone"))
      : null,
    advice(filter),
    tiles(filter),
    h("div", { class: "pair" }, tryBox(state, filter, actions), inside(filter)),
    historySection(state, filter, actions),
  );
}

function head(filter) {
  const facts = [
    kindName(filter.kind),
    filter.probes === null ? null : t("filter.probes", { probes: filter.probes }),
    filter.cache_lines === null
      ? null
      : t(filter.cache_lines === 1 ? "filter.oneLine" : "filter.lines", {
          lines: filter.cache_lines,
        }),
    filter.hash ? t("filter.hash", { hash: filter.hash }) : null,
    filter.database ? t("filter.database", { database: filter.database }) : null,
    filter.expires === null ? null : t("filter.expires", { when: moment(filter.expires * 1000) }),
    filter.file ? t("filter.file", { file: filter.file }) : null,
    filter.read_only ? t("filter.readOnly") : null,
    filter.auto_clear === null ? null : t("filter.autoClear", { share: share(filter.auto_clear) }),
  ];
  return h(
    "header",
    { class: "page-head" },
    h("h1", { class: "name" }, h("bdi", null, filter.name)),
    h(
      "ul",
      { class: "facts-line" },
      facts.filter(Boolean).map((fact) => h("li", null, fact)),
    ),
  );
}

function advice(filter) {
  const list = filter.advice ?? [];
  return h(
    "div",
    { class: "advice" },
    list.map((item) =>
      h(
        "div",
        { class: `notice ${item.level}` },
        h("p", null, h("b", null, t(`level.${item.level}`)), " ", sentence(item, filter)),
      ),
    ),
  );
}

// The advice in words. Numbers that are not there stay empty.
function sentence(item, filter) {
  const key = `advice.${item.code}`;
  if (!hasText(key)) return item.code;
  const command = item.reserve
    ? h("code", null, `BF.RESERVE … ${filter.target_rate ?? 0.01} ${item.reserve}`)
    : "";
  return rich(key, {
    rate: rate(item.rate),
    target: rate(item.target_rate),
    keys: count(item.keys),
    capacity: count(item.capacity),
    used: share(item.used),
    when: item.full_at ? moment(item.full_at * 1000) : "",
    span: item.full_in_seconds ? span(item.full_in_seconds) : "",
    reserved: count(item.capacity),
    command,
    size: item.reserve_bytes ? bytes(item.reserve_bytes) : "",
    slices: exact(item.slices ?? 0),
    file: item.file ?? "",
  });
}

function tiles(filter) {
  const { memory_limit: limit } = filter;
  const usedLevel =
    filter.used === null
      ? "ok"
      : filter.used > 1 && !filter.grows
        ? "bad"
        : filter.used > 0.9 && !filter.grows
          ? "warn"
          : "ok";
  const ratio = filter.target_rate ? filter.rate / filter.target_rate : null;
  const rateLevel = ratio === null ? "ok" : ratio > 1.05 ? "bad" : ratio > 0.9 ? "warn" : "ok";
  const memoryShare = limit?.all ? filter.memory / limit.all : null;
  return h(
    "div",
    { class: "tiles" },
    tile({
      name: t("filter.keys"),
      value: count(filter.keys),
      of: filter.capacity === null ? null : t("filter.of", { whole: count(filter.capacity) }),
      bar:
        filter.used === null
          ? null
          : meter(filter.used, usedLevel, t("filters.usedIs", { share: share(filter.used) })),
      note: keysNote(filter),
      level: usedLevel,
    }),
    tile({
      name: t("filter.fill"),
      value: share(filter.fill),
      bar: meter(filter.fill, "ok", t("filter.fillIs", { share: share(filter.fill) })),
      note:
        filter.estimated_keys === null
          ? null
          : t("filter.estimate", { keys: countInWords(filter.estimated_keys) }),
    }),
    tile({
      name: t("filter.rate"),
      value: rate(filter.rate),
      of:
        filter.target_rate === null
          ? null
          : t("filter.ofTarget", { target: rate(filter.target_rate) }),
      bar:
        ratio === null
          ? null
          : meter(Math.min(1, ratio), rateLevel, t("filter.rateIs", { share: share(ratio) })),
      note: expected(filter),
      level: rateLevel,
    }),
    tile({
      name: t("filter.memory"),
      value: bytes(filter.memory),
      of: limit?.all ? t("filter.of", { whole: bytes(limit.all) }) : null,
      bar:
        memoryShare === null
          ? null
          : meter(
              memoryShare,
              memoryShare > 0.9 ? "warn" : "ok",
              t("filter.memoryIs", { share: share(memoryShare) }),
            ),
      note:
        filter.keys > 0
          ? t("filter.bitsPerKey", { bits: ((filter.bytes * 8) / filter.keys).toFixed(1) })
          : null,
    }),
    tile({
      name: t("filter.addsNow"),
      value: perSecond(filter.per_second?.added),
      of: t("filter.perSecond"),
      note: t("filter.sinceWatched", { count: count(filter.counters?.added ?? 0) }),
    }),
    tile({
      name: t("filter.queriesNow"),
      value: perSecond(filter.per_second?.asked),
      of: t("filter.perSecond"),
      note:
        filter.per_second?.hit_share === null || filter.per_second?.hit_share === undefined
          ? t("filter.noQueries")
          : t("filter.hitShare", { share: share(filter.per_second.hit_share) }),
    }),
  );
}

function keysNote(filter) {
  const { forecast } = filter;
  if (forecast?.full_in_seconds)
    return t("filter.fullIn", {
      span: span(forecast.full_in_seconds),
      when: moment(forecast.full_at * 1000),
    });
  if (filter.used === null) return null;
  return t("filter.usedShare", { share: share(filter.used) });
}

// The false positives of an hour, at the load and the rate of now.
function expected(filter) {
  const { per_second: load } = filter;
  if (!load?.asked || filter.rate === null) return null;
  const absent = load.asked * (1 - (load.hit_share ?? 0));
  const perHour = absent * filter.rate * 3600;
  return t("filter.falseHits", {
    count:
      perHour < 0.1
        ? "< 0.1"
        : perHour < 100
          ? Number(perHour.toPrecision(2))
          : countInWords(Math.round(perHour)),
  });
}

function tile({ name, value, of, bar, note, level }) {
  return h(
    "div",
    { class: `tile ${level ?? ""}` },
    h("p", { class: "tile-name" }, name),
    h("p", { class: "tile-value" }, value, of ? h("span", { class: "tile-of" }, ` ${of}`) : null),
    bar ?? h("div", { class: "meter none" }),
    h("p", { class: "tile-note" }, note ?? ""),
  );
}

function tryBox(state, filter, { act }) {
  const submit = (event) => {
    event.preventDefault();
    if (state.key !== "") act("test");
  };
  return h(
    "section",
    { class: "card try", "aria-labelledby": "try-title" },
    h("h2", { id: "try-title" }, t("try.title")),
    h(
      "form",
      { class: "toy-form", on: { submit } },
      h("label", { class: "offscreen", for: "key" }, t("try.key")),
      h("input", {
        id: "key",
        type: "text",
        value: state.key,
        placeholder: t("try.key"),
        autocomplete: "off",
        autocapitalize: "off",
        spellcheck: "false",
        on: {
          input: (event) => {
            state.key = event.target.value;
          },
        },
      }),
      h("button", { type: "submit", class: "primary", disabled: state.isBusy }, t("try.test")),
      filter.writable
        ? h(
            "button",
            {
              type: "button",
              disabled: state.isBusy,
              on: {
                click: () => {
                  if (state.key !== "") act("add");
                },
              },
            },
            t("try.add"),
          )
        : null,
    ),
    h("div", { role: "status" }, outcome(state.outcome, filter)),
    state.outcome
      ? null
      : h("p", { class: "quiet" }, filter.writable ? t("try.hintWrite") : t("try.hint")),
  );
}

function outcome(result, filter) {
  if (!result) return null;
  const word = h("b", { class: "word" }, h("bdi", null, result.key));
  if (result.error) {
    const { code, message } = result.error;
    return h(
      "p",
      { class: "verdict false" },
      hasText(`error.${code}`) ? t(`error.${code}`) : message,
    );
  }
  const { test, answer } = result;
  const said = answer
    ? answer.new
      ? "try.added"
      : "try.addedAgain"
    : test.present
      ? "try.present"
      : "try.absent";
  return [
    h(
      "p",
      { class: `verdict ${answer ? "add" : test.present ? "yes" : "no"}` },
      rich(said, { key: word, rate: rate(test.rate), chance: oneInOrNever(test.rate) }),
    ),
    test.positions ? positions(test, filter) : h("p", { class: "quiet" }, t("try.noPositions")),
  ];
}

const oneInOrNever = (value) => (value > 0 ? rate(value) : t("number.never"));

// The bits that a key touches: where in the array, or where in its cache lines.
function positions(test, filter) {
  const isSet = test.positions.filter(({ set }) => set).length;
  const label = t("try.positions", { set: isSet, all: test.positions.length });
  const lines = [...new Set(test.positions.map(({ position }) => Math.floor(position / LINE)))];
  const areLines = filter.kind === "blocked" && lines.length <= 2;
  const inLine = (line) =>
    test.positions
      .filter(({ position }) => Math.floor(position / LINE) === line)
      .map(({ position, set }) => ({ bit: position % LINE, set }));
  return h(
    "div",
    { class: "positions" },
    areLines
      ? lines.map((line) => {
          const bits = inLine(line);
          const text = t("try.block", {
            number: exact(line),
            set: bits.filter(({ set }) => set).length,
            all: bits.length,
          });
          return [h("p", { class: "quiet" }, text), lineGrid(bits, text)];
        })
      : [
          h("p", { class: "quiet" }, label),
          test.cells ? positionStrip(test.positions, test.cells, label) : null,
        ],
    h(
      "ul",
      { class: "bits" },
      test.positions.map(({ position, set }) =>
        h(
          "li",
          { class: set ? "set" : "" },
          h("span", { "aria-hidden": "true" }, set ? "1" : "0"),
          exact(position),
          h("span", { class: "offscreen" }, set ? t("try.isSet") : t("try.isNotSet")),
        ),
      ),
    ),
  );
}

// What the filter is made of: layers or generations, and how evenly its array is filled.
function inside(filter) {
  const { generations, strip } = filter;
  return h(
    "section",
    { class: "card inside", "aria-labelledby": "inside-title" },
    h("h2", { id: "inside-title" }, generations ? t("filter.generations") : t("filter.layers")),
    generations ? generationBars(generations) : layerBars(filter.layers ?? []),
    strip
      ? [
          h("h3", null, t("filter.evenness")),
          heatStrip(
            strip.fill,
            strip.stands_out ?? [],
            strip.expected,
            t(strip.stands_out?.length ? "filter.uneven" : "filter.even", {
              slices: strip.fill.length,
              share: share(strip.expected),
              count: strip.stands_out?.length ?? 0,
            }),
          ),
          h(
            "p",
            { class: "quiet" },
            t(strip.stands_out?.length ? "filter.uneven" : "filter.even", {
              slices: strip.fill.length,
              share: share(strip.expected),
              count: strip.stands_out?.length ?? 0,
            }),
          ),
          numbersOf(t("filter.evenness"), {
            head: [t("filter.slice"), t("filter.fill")],
            rows: strip.fill.map((value, index) => [String(index), share(value)]),
          }),
        ]
      : null,
  );
}

function layerBars(layers) {
  const most = Math.max(...layers.map((layer) => layer.bytes), 1);
  return h(
    "ol",
    { class: "bars" },
    layers.map((layer, index) => {
      const level = layer.capacity && layer.keys > layer.capacity * 1.05 ? "warn" : "ok";
      const text = layer.capacity
        ? t("filter.layerIs", {
            keys: count(layer.keys),
            capacity: count(layer.capacity),
            fill: share(layer.fill),
          })
        : layer.fill === null
          ? t("filter.layerGrows", { keys: count(layer.keys) })
          : t("filter.layerFill", { keys: count(layer.keys), fill: share(layer.fill) });
      return h(
        "li",
        null,
        h(
          "div",
          { class: "bars-head" },
          h("span", null, t("filter.layer", { number: index + 1, kind: kindName(layer.kind) })),
          h("span", { class: "quiet" }, `${bytes(layer.bytes)} · ${rate(layer.rate)}`),
        ),
        h(
          "div",
          {
            class: "bar-room",
            style: { width: `${Math.max(12, (layer.bytes / most) * 100).toFixed(1)}%` },
          },
          // A layer that grows has no capacity to be measured by: its bar is its size.
          meter(layer.capacity ? layer.keys / layer.capacity : (layer.fill ?? 1), level, text),
        ),
        h("p", { class: "quiet" }, text),
      );
    }),
  );
}

function generationBars({ steps, span_seconds: seconds, span_keys: keys }) {
  return [
    h(
      "p",
      { class: "quiet" },
      seconds
        ? t("filter.windowTime", { span: span(seconds) })
        : keys
          ? t("filter.windowKeys", { keys: countInWords(keys) })
          : "",
    ),
    h(
      "ol",
      { class: "bars" },
      steps.map((step, index) => {
        const text = t("filter.generationIs", { keys: count(step.keys), fill: share(step.fill) });
        return h(
          "li",
          null,
          h(
            "div",
            { class: "bars-head" },
            h(
              "span",
              null,
              index === 0
                ? t("filter.newest")
                : step.age_seconds !== null && step.age_seconds !== undefined
                  ? t("filter.age", { span: span(step.age_seconds) })
                  : t("filter.generation", { number: index + 1 }),
            ),
            h("span", { class: "quiet" }, text),
          ),
          meter(step.fill, "ok", text),
        );
      }),
    ),
  ];
}
