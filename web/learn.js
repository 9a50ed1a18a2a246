// "How it works": three small filters to play with, for those who meet Bloom filters for the first
// time.

import { h } from "./dom.js";
import { rich, t } from "./i18n.js";
import { rate, share } from "./numbers.js";
import { inventWords, ToyBloom, ToyCounting, ToyWindow } from "./toy.js";

const FIRST_WORDS = ["rose", "iris", "lily"];

// Makes the screen. What was typed and added lives as long as the screen.
export function learnScreen(app) {
  const state = {
    bloom: new ToyBloom(),
    bloomSaid: null,
    counting: new ToyCounting(),
    countingSaid: null,
    window: new ToyWindow(),
    windowSaid: null,
  };
  for (const word of FIRST_WORDS) {
    state.bloom.add(word);
    state.counting.add(word);
  }
  state.window.add("rose");
  state.window.tick();
  state.window.add("iris");
  const change = (action) => {
    action();
    app.refresh();
  };
  return {
    title: () => t("learn.title"),
    view: () =>
      h(
        "div",
        { class: "learn" },
        h(
          "header",
          { class: "page-head" },
          h("h1", null, t("learn.title")),
          h("p", { class: "lead" }, t("learn.lead")),
        ),
        bloomPanel(state, change),
        countingPanel(state, change),
        windowPanel(state, change),
        h(
          "section",
          { class: "card prose" },
          h("h2", null, t("learn.next.title")),
          h("p", null, t("learn.next.text")),
          h(
            "p",
            null,
            h("a", { class: "button", href: app.link("calculator") }, t("learn.next.link")),
          ),
        ),
      ),
  };
}

const mono = (word) => h("b", { class: "word" }, word);
const list = (positions) => positions.join(", ");

function bloomPanel(state, change) {
  const { bloom } = state;
  const say = (verdict) => {
    state.bloomSaid = verdict;
  };
  const ask = (word) => {
    const positions = bloom.positions(word);
    const zero = positions.find((at) => !bloom.bits[at]);
    if (zero !== undefined) {
      say({
        tone: "no",
        touched: positions,
        text: () => rich("learn.bloom.no", { word: mono(word), at: zero }),
      });
    } else if (bloom.words.includes(word)) {
      say({
        tone: "yes",
        touched: positions,
        text: () => rich("learn.bloom.yes", { word: mono(word), list: list(positions) }),
      });
    } else {
      const owners = [...new Set(positions.map((at) => bloom.owners(at)[0]))];
      say({
        tone: "false",
        touched: positions,
        text: () =>
          rich("learn.bloom.false", {
            word: mono(word),
            list: list(positions),
            owners: owners.join(", "),
          }),
      });
    }
  };
  const add = (word) => {
    const touched = bloom.positions(word);
    const isNew = bloom.add(word);
    say({
      tone: "add",
      touched,
      text: () =>
        rich(isNew ? "learn.bloom.added" : "learn.bloom.addedAgain", {
          word: mono(word),
          list: list(touched),
        }),
    });
  };
  const provoke = () => {
    const word = bloom.findFalsePositive(inventWords());
    if (word) ask(word);
    else say({ tone: "no", touched: [], text: () => rich("learn.bloom.none") });
  };
  const fill = () => {
    const before = bloom.words.length;
    for (const word of inventWords(7 + before)) {
      if (bloom.words.length >= before + 8) break;
      bloom.add(word);
    }
    say({
      tone: "add",
      touched: [],
      text: () => rich("learn.bloom.filled", { count: bloom.words.length }),
    });
  };
  return panel({
    key: "bloom",
    label: t("learn.word"),
    actions: [
      ["learn.add", add, "primary"],
      ["learn.ask", ask],
    ],
    tools: [
      ["learn.bloom.fill", fill],
      ["learn.bloom.provoke", provoke],
      [
        "learn.clear",
        () => {
          state.bloom = new ToyBloom();
          say(null);
        },
      ],
    ],
    change,
    said: state.bloomSaid ?? { tone: "idle", text: () => rich("learn.bloom.start") },
    body: [
      cells(
        bloom.bits.map((bit) => (bit ? 1 : 0)),
        state.bloomSaid?.touched ?? [],
        t("learn.bloom.grid", { set: bloom.bits.filter(Boolean).length, size: bloom.size }),
      ),
      h(
        "dl",
        { class: "facts" },
        fact(t("learn.bloom.words"), String(bloom.words.length)),
        fact(
          t("learn.bloom.set"),
          `${bloom.bits.filter(Boolean).length} / ${bloom.size} (${share(bloom.fill)})`,
        ),
        fact(t("learn.bloom.rate"), bloom.rate < 1e-4 ? "0" : rate(bloom.rate)),
      ),
      chips(bloom.words, (word) => change(() => ask(word))),
    ],
  });
}

function countingPanel(state, change) {
  const { counting } = state;
  const say = (verdict) => {
    state.countingSaid = verdict;
  };
  const act = (tone, key, word) =>
    say({
      tone,
      touched: counting.positions(word),
      text: () => rich(key, { word: mono(word), list: list(counting.positions(word)) }),
    });
  const add = (word) => {
    counting.add(word);
    act("add", "learn.counting.added", word);
  };
  const remove = (word) => {
    const wasReal = counting.words.includes(word);
    const removed = counting.remove(word);
    act(
      removed && wasReal ? "yes" : removed ? "false" : "no",
      removed && wasReal
        ? "learn.counting.removed"
        : removed
          ? "learn.counting.wrong"
          : "learn.counting.refused",
      word,
    );
  };
  const ask = (word) =>
    act(
      counting.contains(word) ? "yes" : "no",
      counting.contains(word) ? "learn.counting.yes" : "learn.counting.no",
      word,
    );
  return panel({
    key: "counting",
    label: t("learn.word"),
    actions: [
      ["learn.add", add, "primary"],
      ["learn.remove", remove],
      ["learn.ask", ask],
    ],
    tools: [
      [
        "learn.clear",
        () => {
          state.counting = new ToyCounting();
          say(null);
        },
      ],
    ],
    change,
    said: state.countingSaid ?? { tone: "idle", text: () => rich("learn.counting.start") },
    body: [
      cells(
        counting.counters,
        state.countingSaid?.touched ?? [],
        t("learn.counting.grid", { size: counting.size }),
        "counters",
      ),
      chips(counting.words, (word) => change(() => remove(word)), "learn.remove"),
    ],
  });
}

function windowPanel(state, change) {
  const { window: filter } = state;
  const say = (verdict) => {
    state.windowSaid = verdict;
  };
  const add = (word) => {
    filter.add(word);
    say({
      tone: "add",
      touched: filter.generations[0].positions(word),
      row: 0,
      text: () => rich("learn.window.added", { word: mono(word) }),
    });
  };
  const ask = (word) => {
    const age = filter.age(word);
    const touched = filter.generations[0].positions(word);
    if (age < 0)
      say({ tone: "no", touched, text: () => rich("learn.window.no", { word: mono(word) }) });
    else
      say({
        tone: "yes",
        touched,
        row: age,
        text: () => rich("learn.window.yes", { word: mono(word), age: ageName(age) }),
      });
  };
  const tick = () => {
    const forgotten = filter.tick();
    say({
      tone: "add",
      touched: [],
      text: () =>
        forgotten.length
          ? rich("learn.window.forgot", { words: forgotten.join(", ") })
          : rich("learn.window.ticked"),
    });
  };
  const said = state.windowSaid;
  return panel({
    key: "window",
    label: t("learn.word"),
    actions: [
      ["learn.add", add, "primary"],
      ["learn.ask", ask],
    ],
    tools: [["learn.window.tick", tick]],
    change,
    said: said ?? { tone: "idle", text: () => rich("learn.window.start") },
    body: filter.generations.map((generation, age) =>
      h(
        "div",
        { class: `generation age-${age}` },
        h(
          "div",
          { class: "generation-head" },
          h("span", null, ageName(age)),
          h("span", { class: "quiet" }, generation.words.join(", ")),
        ),
        cells(
          generation.bits.map((bit) => (bit ? 1 : 0)),
          said && (said.row === undefined || said.row === age) ? said.touched : [],
          t("learn.window.grid", { age: ageName(age), words: generation.words.length }),
          "thin",
        ),
      ),
    ),
  });
}

const ageName = (age) => t(`learn.window.age${age}`);

const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

// A card with a field for a word, buttons, a verdict and the filter itself.
function panel({ key, label, actions, tools, change, said, body }) {
  const field = `word-${key}`;
  const run = (action) => {
    const input = document.getElementById(field);
    const word = input.value.trim();
    if (word === "") {
      input.focus();
      return;
    }
    change(() => action(word));
    input.select();
  };
  return h(
    "section",
    { class: "card toy", "aria-labelledby": `title-${key}` },
    h(
      "div",
      { class: "prose" },
      h("h2", { id: `title-${key}` }, t(`learn.${key}.title`)),
      h("p", null, t(`learn.${key}.text`)),
    ),
    h(
      "form",
      {
        class: "toy-form",
        on: {
          submit: (event) => {
            event.preventDefault();
            run(actions[0][1]);
          },
        },
      },
      h("label", { for: field, class: "offscreen" }, label),
      h("input", {
        id: field,
        type: "text",
        maxlength: "40",
        autocomplete: "off",
        autocapitalize: "off",
        spellcheck: "false",
        placeholder: label,
      }),
      actions.map(([name, action, look], index) =>
        h(
          "button",
          {
            type: index === 0 ? "submit" : "button",
            class: look ?? null,
            on: index === 0 ? {} : { click: () => run(action) },
          },
          t(name),
        ),
      ),
    ),
    h("p", { class: `verdict ${said.tone}`, role: "status" }, said.text()),
    body,
    h(
      "div",
      { class: "tools" },
      tools.map(([name, action]) =>
        h(
          "button",
          { type: "button", class: "small", on: { click: () => change(action) } },
          t(name),
        ),
      ),
    ),
  );
}

// The array: a cell for each position, marked where the last word points.
function cells(values, touched, label, look = "") {
  return h(
    "div",
    { class: `cells ${look}`, role: "img", "aria-label": label },
    values.map((value, at) => {
      const probe = touched.indexOf(at);
      return h(
        "span",
        { class: `${value > 0 ? "set" : ""}${probe >= 0 ? " touched" : ""}`, title: String(at) },
        look === "counters" ? String(value) : value > 0 ? "1" : "0",
      );
    }),
  );
}

function chips(words, act, verb = "learn.ask") {
  return words.length === 0
    ? null
    : h(
        "ul",
        { class: "chips" },
        words.map((word) =>
          h(
            "li",
            null,
            h(
              "button",
              {
                type: "button",
                class: "chip",
                "aria-label": `${t(verb)}: ${word}`,
                on: { click: () => act(word) },
              },
              word,
              verb === "learn.remove" ? h("span", { "aria-hidden": "true" }, " ×") : null,
            ),
          ),
        ),
      );
}
