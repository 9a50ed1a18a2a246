// The page of a server: which screen is shown, the frame around it, and signing in.
//
// The address after # says what is shown: #/filters/NAME?db=1, #/calculator?items=1M&rate=0.1%. So
// every view has a link, and the server serves one page.

import { ask, signIn, withParameters } from "./api.js";
import { calculatorScreen } from "./calculator.js";
import { h, icon, logo, show } from "./dom.js";
import { filterScreen } from "./filter.js";
import { filtersScreen } from "./filters.js";
import { healthScreen } from "./health.js";
import { hasText, t } from "./i18n.js";
import { learnScreen } from "./learn.js";
import { span } from "./numbers.js";
import { applyPreferences, onSystemTheme, preferenceSwitches } from "./preferences.js";

const SCREENS = [
  ["filters", "M4 6h16M4 12h16M4 18h10"],
  [
    "calculator",
    "M6 3h12a1 1 0 0 1 1 1v16a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1Zm3 4h6M9 12h.01M12 12h.01M15 12h.01M9 16h.01M12 16h.01M15 16h.01",
  ],
  ["health", "M3 12h4l3-8 4 16 3-8h4"],
  ["learn", "M12 6.5C10 5 7 4.5 3 5v13c4-.5 7 0 9 1.5 2-1.5 5-2 9-1.5V5c-4-.5-7 0-9 1.5Zm0 0V19"],
];

// A server that has not answered for so long is worth a notice, in milliseconds.
const SILENCE = 3000;

const state = {
  route: null,
  screen: null,
  session: null,
  lastHeard: Date.now(),
  trouble: null,
  needsLogin: false,
  isWrongLogin: false,
  language: null,
  isDrawing: false,
};

// Reads the address: { path, params }.
function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  return { path: path === "" ? "filters" : path, params };
}

// Links keep the language if the address names one.
function link(path, params = {}) {
  return `#/${withParameters(path, { ...params, lang: state.language })}`;
}

const app = {
  link,
  hasAllKinds: true,
  async plan(parameters) {
    try {
      return await ask(withParameters("plan", parameters));
    } catch (error) {
      if (error.status === 401) app.failed(error);
      throw error;
    }
  },
  refresh,
  // Changes the parameters in the address without leaving the screen.
  setParams(params) {
    state.route.params = params;
    history.replaceState(null, "", link(state.route.path, params));
  },
  // The server has answered.
  heard() {
    Object.assign(state, { lastHeard: Date.now(), trouble: null, needsLogin: false });
  },
  // The server has not, or has refused.
  failed(error) {
    if (error.status === 401) {
      state.needsLogin = true;
      state.screen?.stop?.();
      refresh();
    } else if (error.status !== 404) state.trouble = error;
    if (error.status !== 0) state.lastHeard = Date.now();
  },
};

function makeScreen({ path, params }) {
  app.params = params;
  if (path.startsWith("filters/")) return filterScreen(app, path.slice("filters/".length));
  switch (path) {
    case "calculator":
      return calculatorScreen(app);
    case "health":
      return healthScreen(app);
    case "learn":
      return learnScreen(app);
    default:
      return filtersScreen(app);
  }
}

// Shows the screen of the address.
function navigate() {
  const isFirst = state.route === null;
  state.screen?.stop?.();
  const { path, params } = readAddress();
  if (params.lang !== undefined && params.lang !== state.language) applyPreferences(params.lang);
  state.language = params.lang ?? null;
  delete params.lang;
  state.route = { path, params };
  state.trouble = null;
  state.screen = makeScreen(state.route);
  draw();
  if (!isFirst) {
    scrollTo({ top: 0 });
    document.getElementById("main").focus({ preventScroll: true });
  }
}

// Draws once for all changes of this moment.
function refresh() {
  if (state.isDrawing) return;
  state.isDrawing = true;
  requestAnimationFrame(() => {
    state.isDrawing = false;
    draw();
  });
}

function draw() {
  document.title = `${state.screen.title()} · inbloom`;
  show(
    document.body,
    h(
      "a",
      {
        class: "skip",
        href: "#main",
        on: {
          click: (event) => {
            event.preventDefault();
            document.getElementById("main").focus();
          },
        },
      },
      t("shell.skip"),
    ),
    header(),
    h(
      "main",
      { id: "main", tabindex: "-1" },
      // Always there, so that a notice that comes or goes leaves the nodes after it in place.
      h("div", null, notice()),
      state.needsLogin ? loginForm() : state.screen.view(),
    ),
    footer(),
  );
}

function header() {
  const current = state.route.path.split("/")[0];
  return h(
    "header",
    { class: "top" },
    h(
      "div",
      { class: "top-inner" },
      h(
        "a",
        { class: "brand", href: link("filters"), "aria-label": "inbloom" },
        logo(),
        h("span", null, "inbloom"),
      ),
      h(
        "nav",
        { class: "nav", "aria-label": t("shell.screens") },
        SCREENS.map(([name, path]) =>
          h(
            "a",
            { href: link(name), "aria-current": name === current ? "page" : null },
            icon(path),
            h("span", null, t(`nav.${name}`)),
          ),
        ),
      ),
      preferenceSwitches({
        refresh,
        changed: (language) => {
          state.language = language;
          app.setParams(state.route.params);
          refresh();
        },
      }),
    ),
  );
}

function notice() {
  const { trouble } = state;
  const silence = Date.now() - state.lastHeard;
  if (!trouble || (trouble.status === 0 && silence < SILENCE)) return null;
  const text =
    trouble.status === 0
      ? t("error.offline", { span: span(silence / 1000) })
      : hasText(`error.${trouble.code}`)
        ? t(`error.${trouble.code}`)
        : trouble.message;
  return h(
    "div",
    { class: `notice ${trouble.status === 0 ? "bad" : "warn"}`, role: "alert" },
    h("p", null, text),
  );
}

function loginForm() {
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    signIn(form.elements.user.value || "default", form.elements.password.value);
    try {
      state.session = await ask("session");
      state.isWrongLogin = state.session.user === null;
      state.needsLogin = state.isWrongLogin;
      if (state.isWrongLogin) signIn(null);
    } catch (error) {
      state.isWrongLogin = error.status === 401;
      app.failed(error);
    }
    if (!state.needsLogin) navigate();
    refresh();
  };
  return h(
    "section",
    { class: "card login" },
    h("h1", null, t("login.title")),
    h("p", { class: "quiet" }, t("login.text")),
    h(
      "form",
      { on: { submit } },
      h(
        "div",
        { class: "field" },
        h("label", { for: "user" }, t("login.user")),
        h("input", {
          id: "user",
          name: "user",
          type: "text",
          placeholder: "default",
          autocomplete: "username",
          autocapitalize: "off",
          spellcheck: "false",
        }),
      ),
      h(
        "div",
        { class: "field" },
        h("label", { for: "password" }, t("login.password")),
        h("input", {
          id: "password",
          name: "password",
          type: "password",
          autocomplete: "current-password",
        }),
      ),
      state.isWrongLogin
        ? h("p", { class: "verdict false", role: "alert" }, t("login.wrong"))
        : null,
      h("button", { type: "submit", class: "primary" }, t("login.submit")),
    ),
  );
}

function signOut() {
  signIn(null);
  state.session = null;
  readSession();
  navigate();
}

function footer() {
  const { session } = state;
  return h(
    "footer",
    { class: "foot" },
    session ? h("span", null, `inbloom ${session.version}`) : null,
    session?.login && session.user
      ? h(
          "span",
          null,
          t("shell.signedIn", { user: session.user }),
          " ",
          h(
            "button",
            { type: "button", class: "link", on: { click: signOut } },
            t("shell.signOut"),
          ),
        )
      : null,
    h("a", { href: "metrics" }, t("shell.metrics")),
  );
}

async function readSession() {
  try {
    state.session = await ask("session");
    refresh();
  } catch {
    // The screens report what is wrong.
  }
}

applyPreferences(readAddress().params.lang);
addEventListener("hashchange", navigate);
onSystemTheme(refresh);
// A server that stops answering is noticed without a new answer.
setInterval(() => {
  if (state.trouble?.status === 0) refresh();
}, 1000);
readSession();
navigate();
