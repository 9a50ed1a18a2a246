// The list of filters: search, sort, and one line that says whether each is healthy. The server
// sorts and cuts, so ten thousand filters are as quick as ten.

import { ask, poll, withParameters } from "./api.js";
import { meter } from "./charts.js";
import { h } from "./dom.js";
import { kindName, t } from "./i18n.js";
import { bytes, count, exact, rate, share } from "./numbers.js";

const PAGE = 50;
const REFRESH = 1000;
const SORTS = ["name", "keys", "capacity", "used", "memory"];
const KINDS = [
  "blocked",
  "classic",
  "counting",
  "cuckoo",
  "window",
  "scalable",
  "ribbon",
  "bitmap",
  "redisbloom",
  "redisbloom-cuckoo",
];

// Makes the screen. Search, order and page are in the address.
export function filtersScreen(app) {
  const state = { ...readParams(app.params), answer: null, error: null };
  const load = async (signal) => {
    const { q, sort, order, offset, kind, db } = state;
    try {
      state.answer = await ask(
        withParameters("filters", {
          q,
          sort,
          order,
          offset: offset || null,
          kind,
          db,
          limit: PAGE,
        }),
        { signal },
      );
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
  const change = (changes) => {
    Object.assign(state, { offset: 0 }, changes);
    const { q, sort, order, offset, kind, db } = state;
    app.setParams({
      q,
      sort: sort === "name" ? "" : sort,
      order: order === firstOrder(sort) ? "" : order,
      offset: offset ? String(offset) : "",
      kind,
      db,
    });
    polling.now();
    app.refresh();
  };
  return {
    title: () => t("filters.title"),
    stop: polling.stop,
    view: () => view(app, state, change),
  };
}

const firstOrder = (sort) => (sort === "name" ? "asc" : "desc");

function readParams({ q = "", sort = "name", order, offset, kind = "", db = "" }) {
  const known = SORTS.includes(sort) ? sort : "name";
  return {
    q,
    kind,
    db,
    sort: known,
    order: order === "asc" || order === "desc" ? order : firstOrder(known),
    offset: Math.max(0, Number.parseInt(offset ?? "0", 10) || 0),
  };
}

function view(app, state, change) {
  const { answer } = state;
  const isEmpty = answer && answer.total === 0 && state.q === "" && state.kind === "";
  return h(
    "div",
    { class: "filters" },
    h(
      "header",
      { class: "page-head" },
      h(
        "h1",
        null,
        t("filters.title"),
        answer ? h("span", { class: "head-count" }, exact(answer.total)) : null,
      ),
    ),
    isEmpty && (answer.databases ?? []).every(({ filters }) => filters === 0)
      ? empty(app)
      : [
          toolbar(state, change),
          answer
            ? [table(app, state, change), pager(state, change)]
            : state.error
              ? null
              : h("div", { class: "card loading", "aria-busy": "true" }, t("shell.loading")),
        ],
  );
}

function empty(app) {
  return h(
    "section",
    { class: "card empty" },
    h("h2", null, t("filters.empty")),
    h("p", null, t("filters.emptyText")),
    h(
      "pre",
      { tabindex: "0" },
      h(
        "code",
        null,
        "redis-cli -p 7379 BF.RESERVE seen 0.001 1000000\nredis-cli -p 7379 BF.ADD seen alice",
      ),
    ),
    h(
      "p",
      null,
      h("a", { class: "button", href: app.link("calculator") }, t("filters.emptyLink")),
      " ",
      h("a", { class: "button ghost", href: app.link("learn") }, t("nav.learn")),
    ),
  );
}

function toolbar(state, change) {
  const shown = Number(state.db) || 0;
  const databases = (state.answer?.databases ?? []).filter(({ filters }) => filters > 0);
  // The one that is shown is in the list, empty or not.
  if (!databases.some(({ database }) => database === shown))
    databases.push({ database: shown, filters: 0 });
  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  return h(
    "div",
    { class: "toolbar", role: "search" },
    h("input", {
      type: "search",
      id: "search",
      value: state.q,
      placeholder: t("filters.search"),
      "aria-label": t("filters.search"),
      autocomplete: "off",
      spellcheck: "false",
      on: { input: (event) => change({ q: event.target.value }) },
    }),
    h(
      "select",
      {
        id: "kind",
        "aria-label": t("column.kind"),
        on: { change: (event) => change({ kind: event.target.value }) },
      },
      option("", t("filters.allKinds"), state.kind),
      KINDS.map((kind) => option(kind, kindName(kind), state.kind)),
    ),
    h(
      "select",
      {
        id: "sort",
        class: "narrow-only",
        "aria-label": t("filters.sort"),
        on: {
          change: (event) =>
            change({ sort: event.target.value, order: firstOrder(event.target.value) }),
        },
      },
      SORTS.map((sort) =>
        option(sort, t("filters.sortBy", { column: t(`column.${sort}`) }), state.sort),
      ),
    ),
    databases.length > 1 || state.db !== ""
      ? h(
          "select",
          {
            id: "db",
            "aria-label": t("filters.database"),
            on: { change: (event) => change({ db: event.target.value }) },
          },
          databases.map(({ database, filters }) =>
            option(
              database === 0 ? "" : String(database),
              t("filters.databaseIs", { database, count: exact(filters) }),
              state.db,
            ),
          ),
        )
      : null,
  );
}

function table(app, state, change) {
  const { answer } = state;
  const header = (name, isNumber = true) => {
    const isSorted = state.sort === name;
    const order =
      isSorted && state.order === firstOrder(name)
        ? { asc: "desc", desc: "asc" }[state.order]
        : firstOrder(name);
    return h(
      "th",
      {
        scope: "col",
        class: isNumber ? "number" : null,
        "aria-sort": isSorted ? { asc: "ascending", desc: "descending" }[state.order] : null,
      },
      h(
        "button",
        {
          type: "button",
          class: `sort${isSorted ? ` ${state.order}` : ""}`,
          on: { click: () => change({ sort: name, order }) },
        },
        t(`column.${name}`),
      ),
    );
  };
  const plain = (name, look) => h("th", { scope: "col", class: look }, t(`column.${name}`));
  if (answer.filters.length === 0)
    return h(
      "div",
      { class: "card empty" },
      h("p", null, t(answer.total === 0 ? "filters.noneHere" : "filters.none")),
    );
  return h(
    "div",
    { class: "card flush" },
    h(
      "table",
      { class: "list stack" },
      h("caption", { class: "offscreen" }, t("filters.caption", { found: exact(answer.found) })),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          header("name", false),
          plain("kind"),
          header("keys"),
          header("capacity"),
          header("used", false),
          plain("rate", "number"),
          header("memory"),
        ),
      ),
      h(
        "tbody",
        null,
        answer.filters.map((row) => filterRow(app, row)),
      ),
    ),
  );
}

function filterRow(app, row) {
  const cell = (name, ...children) =>
    h("td", { class: "number", "data-label": t(`column.${name}`) }, ...children);
  const level = row.level === "info" ? "ok" : row.level;
  return h(
    "tr",
    null,
    h(
      "th",
      { scope: "row" },
      h(
        "a",
        {
          class: "name",
          href: app.link(`filters/${row.path}`, { db: row.database || null }),
        },
        h("span", {
          class: `dot ${row.level}`,
          role: "img",
          "aria-label": t(`level.${row.level}`),
          title: t(`level.${row.level}`),
        }),
        h("bdi", null, row.name),
      ),
    ),
    h("td", { class: "kind" }, kindName(row.kind)),
    cell("keys", count(row.keys)),
    h("td", { class: "number capacity" }, row.capacity === null ? "–" : count(row.capacity)),
    h(
      "td",
      { "data-label": t("column.used"), class: "used" },
      row.used === null
        ? "–"
        : [
            h("span", { class: "used-number" }, share(row.used)),
            meter(row.used, level, t("filters.usedIs", { share: share(row.used) })),
          ],
    ),
    cell(
      "rate",
      rate(row.rate),
      row.target_rate === null
        ? null
        : h("span", { class: "quiet target" }, ` / ${rate(row.target_rate)}`),
    ),
    cell("memory", bytes(row.memory)),
  );
}

function pager(state, change) {
  const { answer } = state;
  if (answer.found === 0) return null;
  const from = answer.offset + 1;
  const to = answer.offset + answer.filters.length;
  const turn = (offset) => {
    change({ offset });
    scrollTo({ top: 0 });
  };
  return h(
    "nav",
    { class: "pager", "aria-label": t("filters.pages") },
    h(
      "span",
      { class: "quiet" },
      t("filters.range", { from: exact(from), to: exact(to), found: exact(answer.found) }),
    ),
    answer.found > PAGE
      ? [
          h(
            "button",
            {
              type: "button",
              class: "small",
              disabled: answer.offset === 0,
              on: { click: () => turn(Math.max(0, answer.offset - PAGE)) },
            },
            t("filters.previous"),
          ),
          h(
            "button",
            {
              type: "button",
              class: "small",
              disabled: answer.next === null,
              on: { click: () => turn(answer.next) },
            },
            t("filters.next"),
          ),
        ]
      : null,
  );
}
