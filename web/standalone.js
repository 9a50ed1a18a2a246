// The calculator alone, for `inbloom calculator -o page.html`: one file, no server. The sizes come
// from formulas.js, which knows the classic and the blocked kind.

import { calculatorScreen } from "./calculator.js";
import { h, logo, show } from "./dom.js";
import { plan } from "./formulas.js";
import { t } from "./i18n.js";
import { applyPreferences, onSystemTheme, preferenceSwitches } from "./preferences.js";

let screen = null;
let named = null;

// The parameters after # in the address.
function readParams() {
  const params = Object.fromEntries(
    new URLSearchParams(location.hash.replace(/^#\/?(calculator)?\??/, "")),
  );
  named = params.lang ?? null;
  delete params.lang;
  return params;
}

function open() {
  screen?.stop();
  const params = readParams();
  applyPreferences(named);
  const app = {
    params,
    hasAllKinds: false,
    refresh: draw,
    // A failure has the shape of the server's answers.
    plan: async (parameters) => {
      try {
        return plan(parameters);
      } catch (error) {
        throw Object.assign(new Error(error.message), { code: error.code, more: error });
      }
    },
    setParams(changed) {
      app.params = changed;
      const query = new URLSearchParams({ ...changed, ...(named ? { lang: named } : {}) });
      history.replaceState(null, "", `#${query}`);
    },
  };
  screen = calculatorScreen(app);
  screen.setLanguage = (language) => {
    named = language;
    app.setParams(app.params);
    draw();
  };
  draw();
}

function draw() {
  if (!screen) return;
  document.title = `${t("calculator.title")} · inbloom`;
  show(
    document.body,
    h(
      "header",
      { class: "top" },
      h(
        "div",
        { class: "top-inner" },
        h("span", { class: "brand" }, logo(), h("span", null, "inbloom")),
        h("span", { class: "nav" }),
        preferenceSwitches({ refresh: draw, changed: (language) => screen.setLanguage(language) }),
      ),
    ),
    h("main", { id: "main" }, screen.view()),
  );
}

addEventListener("hashchange", open);
onSystemTheme(draw);
open();
