// The calculator: give what you know, see the rest, for all kinds side by side.
//
// The sizes come from `app.plan(parameters)`: the server's answer, which is the command line's, or
// the formulas of the page that needs no server. Nothing is computed here.

import { curves } from "./curves.js";
import { copy, h } from "./dom.js";
import { hasText, kindName, refusal, rich, t } from "./i18n.js";
import { brief, bytes, countInWords, exact, oneIn, rate, share, significant } from "./numbers.js";

// What the fields start with, if the address says nothing.
const FIRST = { items: "1M", rate: "0.1%" };

const FIELDS = ["items", "rate", "bytes", "probes"];
// Fields of one kind each, behind a fold.
const SPECIAL_FIELDS = ["universe", "window"];
const NEEDS = ["remove", "grow", "forget", "static", "merge"];

const PRESETS = {
  crawler: { items: "100M", rate: "0.1%" },
  guard: { items: "10M", rate: "1%", need: "remove" },
  blacklist: { items: "10e9", rate: "0.01%", need: "static" },
  passwords: { items: "1e9", rate: "0.1%", need: "static" },
  seen: { items: "5k", rate: "0.5%" },
};

const COMMANDS = ["cli", "reserve", "rust", "python"];

// Typing asks the server once it pauses.
const PAUSE = 140;

// Makes the screen. `app` has `plan`, `params`, `setParams`, `refresh`, and `hasAllKinds`: the page without
// a server knows two kinds, so it offers no field and no need that only others can meet.
export function calculatorScreen(app) {
  const state = {
    inputs: readInputs(app.params),
    answer: null,
    error: null,
    isAsking: true,
    number: 0,
    timer: null,
    command: "cli",
    copied: null,
  };
  const ask = async () => {
    const number = (state.number += 1);
    try {
      const answer = await app.plan(parametersOf(state.inputs));
      if (number !== state.number) return;
      Object.assign(state, { answer, error: null, isAsking: false });
    } catch (error) {
      if (number !== state.number) return;
      Object.assign(state, { error, isAsking: false });
    }
    app.refresh();
  };
  // Takes new inputs into the address and asks for their plan.
  const change = (changes, isTyping = false) => {
    Object.assign(state.inputs, changes);
    Object.assign(state, { copied: null, isAsking: true });
    app.setParams(parametersOf(state.inputs));
    clearTimeout(state.timer);
    state.timer = setTimeout(ask, isTyping ? PAUSE : 0);
    app.refresh();
  };
  ask();
  return {
    title: () => t("calculator.title"),
    stop: () => {
      clearTimeout(state.timer);
      state.number += 1;
    },
    view: () => view(app, state, change),
  };
}

function readInputs(params) {
  const names = [...FIELDS, ...SPECIAL_FIELDS, "kind", "need"];
  const inputs = Object.fromEntries(names.map((name) => [name, params[name] ?? ""]));
  return names.some((name) => inputs[name] !== "") ? inputs : { ...inputs, ...FIRST };
}

const parametersOf = (inputs) =>
  Object.fromEntries(
    Object.entries(inputs)
      .filter(([, value]) => value.trim() !== "")
      .map(([name, value]) => [name, value.trim()]),
  );

function view(app, state, change) {
  const { answer } = state;
  const row =
    answer?.kinds.find((candidate) => candidate.kind === answer.chosen && !candidate.refused) ??
    null;
  return h(
    "div",
    { class: "calculator" },
    h(
      "header",
      { class: "page-head" },
      h("h1", null, t("calculator.title")),
      h("p", { class: "lead" }, t(app.hasAllKinds ? "calculator.lead" : "calculator.leadAlone")),
    ),
    presets(app, state, change),
    h(
      "div",
      { class: "split" },
      inputs(app, state, row, change),
      h(
        "div",
        {
          class: `results${state.error ? " stale" : ""}`,
          "aria-busy": state.isAsking ? "true" : null,
        },
        state.error ? problem(state.error) : null,
        answer ? [recommendation(answer, row, change), comparison(answer, change)] : null,
      ),
    ),
    answer && row && !isUseless(row)
      ? [curves(answer, row), commands(state, answer, app)]
      : null,
  );
}

function presets(app, state, change) {
  return h(
    "div",
    { class: "presets", role: "group", "aria-label": t("calculator.presets") },
    h("span", { class: "presets-label", "aria-hidden": "true" }, t("calculator.presets")),
    Object.entries(PRESETS).map(([name, preset]) => {
      const wanted = {
        items: "",
        rate: "",
        bytes: "",
        probes: "",
        universe: "",
        window: "",
        kind: "",
        ...preset,
        need: app.hasAllKinds ? (preset.need ?? "") : "",
      };
      const isOn = Object.entries(wanted).every(([field, value]) => state.inputs[field] === value);
      return h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(isOn),
          on: { click: () => change(wanted) },
        },
        t(`preset.${name}`),
      );
    }),
  );
}

function inputs(app, state, row, change) {
  const needs = state.inputs.need.split(",").filter(Boolean);
  const toggle = (name) =>
    change({
      need: (needs.includes(name)
        ? needs.filter((other) => other !== name)
        : [...needs, name]
      ).join(","),
    });
  return h(
    "form",
    {
      class: "card inputs",
      "aria-label": t("calculator.inputs"),
      on: { submit: (event) => event.preventDefault() },
    },
    FIELDS.map((name) => field(name, state, row, change)),
    app.hasAllKinds ? [needsBox(needs, toggle), specialFields(state, row, change)] : null,
  );
}

function needsBox(needs, toggle) {
  return h(
    "fieldset",
    { class: "needs" },
    h("legend", null, t("calculator.needs")),
    NEEDS.map((name) =>
      h(
        "label",
        { class: "check" },
        h("input", {
          type: "checkbox",
          checked: needs.includes(name),
          on: { change: () => toggle(name) },
        }),
        h("span", null, t(`need.${name}`)),
      ),
    ),
  );
}

function specialFields(state, row, change) {
  const isSpecial = SPECIAL_FIELDS.some((name) => state.inputs[name] !== "");
  return h(
    "details",
    { class: "more", open: isSpecial },
    h("summary", null, t("calculator.special")),
    SPECIAL_FIELDS.map((name) => field(name, state, row, change)),
  );
}

// A field, what it was taken for or was computed as, and what is wrong with it.
function field(name, state, row, change) {
  const value = state.inputs[name];
  const wrong = state.error?.more?.parameter === name ? state.error.message : null;
  const isGiven = value.trim() !== "";
  return h(
    "div",
    { class: `field${isGiven ? "" : " computed"}${wrong ? " wrong" : ""}` },
    h("label", { for: `field-${name}` }, t(`field.${name}`)),
    h(
      "div",
      { class: "field-box" },
      h("input", {
        id: `field-${name}`,
        type: "text",
        value,
        autocomplete: "off",
        autocapitalize: "off",
        spellcheck: "false",
        inputmode: name === "probes" ? "numeric" : null,
        placeholder: row ? computed(name, row) : "",
        "aria-describedby": `hint-${name}`,
        "aria-invalid": wrong ? "true" : null,
        on: { input: (event) => change({ [name]: event.target.value }, true) },
      }),
      isGiven
        ? h(
            "button",
            {
              type: "button",
              class: "clear",
              "aria-label": t("calculator.clear", { field: t(`field.${name}`) }),
              title: t("calculator.clear", { field: t(`field.${name}`) }),
              on: {
                click: () => {
                  document.getElementById(`field-${name}`).value = "";
                  change({ [name]: "" });
                  document.getElementById(`field-${name}`).focus();
                },
              },
            },
            "×",
          )
        : null,
    ),
    h("p", { id: `hint-${name}`, class: "hint" }, wrong ? sentence(wrong) : hint(name, row, isGiven)),
  );
}

// What an empty field would have to hold, in the grammar that the field takes.
function computed(name, row) {
  switch (name) {
    case "items":
      return row.items === null ? "" : brief(row.items);
    case "rate":
      return row.rate === 0 ? "0" : rate(row.rate);
    case "bytes":
      return row.bytes === null ? "" : brief(row.bytes);
    case "probes":
      return row.probes === null ? "–" : String(row.probes);
    default:
      return "";
  }
}

function hint(name, row, isGiven) {
  if (!row) return t(`hint.${name}`);
  const values = {
    items: row.items !== null && t("hint.items.is", { count: exact(row.items) }),
    rate: row.rate > 0 && t("hint.rate.is", { chance: oneIn(row.rate) }),
    bytes:
      row.bytes !== null &&
      t("hint.bytes.is", { size: bytes(row.bytes), bits: significant(row.bits_per_key) }),
    probes:
      row.probes !== null
        ? t(row.cache_lines === 1 ? "hint.probes.one" : "hint.probes.is", {
            lines: row.cache_lines,
          })
        : t("hint.probes.none"),
  };
  const text = values[name];
  if (!text) return t(`hint.${name}`);
  return isGiven ? text : t("hint.computed", { value: text });
}

function problem(error) {
  const isField =
    error.more?.parameter && FIELDS.concat(SPECIAL_FIELDS).includes(error.more.parameter);
  const text = hasText(`error.${error.code}`) ? t(`error.${error.code}`) : error.message;
  const kinds = error.more?.kinds ?? [];
  return h(
    "div",
    { class: "notice warn", role: "alert" },
    h(
      "p",
      null,
      isField
        ? rich("calculator.wrongField", {
            field: t(`field.${error.more.parameter}`),
            message: sentence(error.message),
          })
        : text,
    ),
    kinds.length
      ? h(
          "ul",
          null,
          kinds.map(({ kind, refused }) =>
            h("li", null, h("b", null, kindName(kind)), ": ", sentence(refused)),
          ),
        )
      : null,
  );
}

// A sentence of the planner, without the name of the parameter, which stands beside it.
function sentence(text) {
  const plain = text.replace(/^'\w+': /, "");
  const translated = refusal(plain);
  return h("span", { lang: translated === null ? "en" : null }, translated ?? plain);
}

// A filter that answers yes to most absent keys helps nobody, and no command makes one.
const isUseless = (row) => row.rate > 0.5;

// The recommended kind in a sentence and why, or the chosen one and what is recommended instead.
function recommendation(answer, row, change) {
  const { recommendation: advice } = answer;
  const advised = answer.kinds.find(({ kind, refused }) => kind === advice?.kind && !refused);
  const shown = row ?? advised;
  if (!shown) return h("div", { class: "notice" }, h("p", null, t("advise.none")));
  if (isUseless(shown))
    return h(
      "div",
      { class: "notice warn", role: "status" },
      h("p", null, t("calculator.tooSmall", { share: share(shown.rate) })),
    );
  const isAdvised = shown === advised;
  const line = (key, values) =>
    h("p", { class: "hero-why" }, t(key, values), " ", t(`kind.${shown.kind}.is`));
  return h(
    "section",
    { class: "hero card", "aria-live": "polite" },
    h("p", { class: "eyebrow" }, t(isAdvised ? "calculator.recommended" : "calculator.yourChoice")),
    h("p", { class: "hero-line" }, heroLine(shown)),
    isAdvised
      ? [line(`advise.${advice.code}`), alternative(advice.alternative, change)]
      : [
          advised
            ? line("advise.instead", { kind: kindName(advised.kind), size: sizeOf(advised) })
            : line("advise.none"),
          h(
            "button",
            { type: "button", class: "small", on: { click: () => change({ kind: "" }) } },
            t("calculator.follow"),
          ),
        ],
    answer.implied_rate
      ? h("p", { class: "quiet" }, t("calculator.implied", { rate: rate(answer.implied_rate) }))
      : null,
  );
}

// The memory of a plan, or of each key where there is no number of keys.
const sizeOf = (row) =>
  row.bytes === null
    ? t("calculator.perKey", { bits: significant(row.bits_per_key) })
    : bytes(row.bytes);

function heroLine(row) {
  const strong = (text) => h("b", null, text);
  const values = {
    kind: strong(kindName(row.kind)),
    size: strong(row.bytes === null ? "" : bytes(row.bytes)),
    keys: row.items === null ? "" : countInWords(row.items),
    rate: row.rate > 0 ? oneIn(row.rate) : "",
    bits: strong(significant(row.bits_per_key)),
  };
  if (row.rate === 0) return rich("calculator.lineExact", values);
  return rich(row.bytes === null ? "calculator.linePerKey" : "calculator.line", values);
}

function alternative(other, change) {
  if (!other || other.bytes === null) return null;
  const key = `alternative.${hasText(`alternative.${other.code}`) ? other.code : "other"}`;
  return h(
    "p",
    { class: "alternative" },
    t(key, {
      kind: kindName(other.kind),
      size: bytes(other.bytes),
      saves: share(Math.abs(other.saves)),
    }),
    " ",
    h(
      "button",
      { type: "button", class: "link", on: { click: () => change({ kind: other.kind }) } },
      t("calculator.take", { kind: kindName(other.kind) }),
    ),
  );
}

const ABILITIES = ["merge", "remove", "grow", "forget", "static"];

function comparison(answer, change) {
  const usable = answer.kinds.filter((row) => !row.refused);
  const largest = Math.max(...usable.map((row) => row.bits_per_key));
  const choose = (kind) => change({ kind: kind === answer.recommendation?.kind ? "" : kind });
  return h(
    "section",
    { class: "card flush", "aria-labelledby": "kinds-title" },
    h("h2", { id: "kinds-title" }, t("calculator.kinds")),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "kinds stack" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["kind", "memory", "bitsPerKey", "probes", "lines", "rate", "can"].map((name) =>
              h(
                "th",
                {
                  scope: "col",
                  class: name === "kind" || name === "can" || name === "memory" ? null : "number",
                },
                t(`column.${name}`),
              ),
            ),
          ),
        ),
        h(
          "tbody",
          null,
          answer.kinds.map((row) =>
            row.refused ? refusedRow(row) : kindRow(row, answer, largest, choose),
          ),
        ),
      ),
    ),
  );
}

function kindRow(row, answer, largest, choose) {
  const isChosen = row.kind === answer.chosen;
  const isBest = row.kind === answer.recommendation?.kind && !isUseless(row);
  const cell = (name, ...children) =>
    h("td", { class: "number", "data-label": t(`column.${name}`) }, ...children);
  return h(
    "tr",
    {
      class: isChosen ? "chosen" : null,
      "data-key": row.kind,
      on: { click: () => choose(row.kind) },
    },
    h(
      "th",
      { scope: "row" },
      h(
        "label",
        { class: "check" },
        h("input", {
          type: "radio",
          name: "kind",
          value: row.kind,
          checked: isChosen,
          on: { change: () => choose(row.kind), click: (event) => event.stopPropagation() },
        }),
        h(
          "span",
          null,
          kindName(row.kind),
          isBest ? h("span", { class: "badge" }, t("calculator.best")) : null,
        ),
      ),
    ),
    h(
      "td",
      { class: "size", "data-label": t("column.memory") },
      h(
        "span",
        {
          class: "size-number",
          title: row.bytes === null ? null : t("number.bytes", { count: exact(row.bytes) }),
        },
        row.bytes === null ? "–" : bytes(row.bytes),
      ),
      h(
        "span",
        { class: "size-bar", "aria-hidden": "true" },
        h("span", { style: { width: `${((row.bits_per_key / largest) * 100).toFixed(1)}%` } }),
      ),
    ),
    cell("bitsPerKey", row.bits_per_key.toFixed(2)),
    cell("probes", row.probes ?? "–"),
    cell("lines", String(row.cache_lines)),
    cell("rate", rate(row.rate)),
    h(
      "td",
      { "data-label": t("column.can") },
      h(
        "span",
        { class: "abilities" },
        ABILITIES.filter((name) => row[name]).map((name) =>
          h("span", { class: "tag" }, t(`can.${name}`)),
        ),
      ),
    ),
  );
}

function refusedRow(row) {
  const text =
    hasText(`refused.${row.kind}`) && /needs/.test(row.refused)
      ? h("span", null, t(`refused.${row.kind}`))
      : sentence(row.refused);
  return h(
    "tr",
    { class: "refused", "data-key": row.kind },
    h(
      "th",
      { scope: "row" },
      h(
        "span",
        { class: "check" },
        h("span", { class: "no-radio", "aria-hidden": "true" }),
        h("span", null, kindName(row.kind)),
      ),
    ),
    h("td", { colspan: "6" }, text),
  );
}

function commands(state, answer, app) {
  const texts = answer.commands;
  if (!texts) return null;
  const isThere = (name) => typeof texts[name] === "string";
  const shown = isThere(state.command) ? state.command : COMMANDS.find(isThere);
  const copyIt = async () => {
    state.copied = (await copy(texts[shown])) ? shown : null;
    app.refresh();
  };
  const select = (name) => {
    state.command = name;
    state.copied = null;
    app.refresh();
    document.getElementById(`tab-${name}`)?.focus();
  };
  // The arrow keys move between tabs, as in every list of tabs.
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const there = COMMANDS.filter(isThere);
    select(there[(there.indexOf(shown) + step + there.length) % there.length]);
  };
  return h(
    "section",
    { class: "card flush commands", "aria-labelledby": "copy-title" },
    h(
      "div",
      { class: "commands-head" },
      h("h2", { id: "copy-title" }, t("calculator.copyAs")),
      h(
        "div",
        { class: "tabs", role: "tablist", "aria-labelledby": "copy-title", on: { keydown: move } },
        COMMANDS.filter(isThere).map((name) =>
          h(
            "button",
            {
              type: "button",
              role: "tab",
              id: `tab-${name}`,
              "aria-controls": "command-text",
              "aria-selected": String(name === shown),
              tabindex: name === shown ? "0" : "-1",
              on: { click: () => select(name) },
            },
            t(`command.${name}`),
          ),
        ),
      ),
      h(
        "button",
        { type: "button", class: "small", id: "copy", on: { click: copyIt } },
        state.copied === shown ? t("calculator.copied") : t("calculator.copy"),
      ),
    ),
    h(
      "pre",
      { id: "command-text", role: "tabpanel", tabindex: "0", "aria-labelledby": `tab-${shown}` },
      h("code", null, texts[shown]),
    ),
    h(
      "p",
      { class: "offscreen", role: "status" },
      state.copied === shown ? t("calculator.copied") : "",
    ),
    isThere("reserve") ? null : h("p", { class: "quiet pad" }, t("command.noReserve")),
  );
}
