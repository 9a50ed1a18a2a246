// Language and theme: what the reader chose, kept in this browser. An address may name a language,
// which then wins, so that a link looks the same to everybody.

import { h, icon } from "./dom.js";
import { chooseLanguage, language, t } from "./i18n.js";

const SUN =
  "M12 4V2m0 20v-2m8-8h2M2 12h2m13.66-5.66 1.41-1.41M4.93 19.07l1.41-1.41m11.32 0 1.41 1.41M4.93 4.93l1.41 1.41M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z";
const MOON = "M20.5 14.2A8.5 8.5 0 0 1 9.8 3.5a8.5 8.5 0 1 0 10.7 10.7Z";
const DARK = matchMedia("(prefers-color-scheme: dark)");

// A page that is opened from a file may have no storage.
function remembered(name) {
  try {
    return localStorage.getItem(`inbloom.${name}`);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`inbloom.${name}`);
    else localStorage.setItem(`inbloom.${name}`, value);
  } catch {
    // The choice holds until the page is closed.
  }
}

// Applies what was chosen before; `named` is the language of the address, if it has one.
export function applyPreferences(named) {
  chooseLanguage(named ?? remembered("language"));
  const theme = remembered("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : DARK.matches;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  // What the system has needs no memory, and follows the system from then on.
  remember("theme", (theme === "dark") === DARK.matches ? null : theme);
  document.documentElement.dataset.theme = theme;
}

// Calls back when the system changes from light to dark or back.
export function onSystemTheme(refresh) {
  DARK.addEventListener("change", refresh);
}

// The two switches. `changed(language)` is called after a language was chosen, `refresh` after a
// theme.
export function preferenceSwitches({ changed, refresh }) {
  const other = language() === "zh" ? "en" : "zh";
  return h(
    "div",
    { class: "switches" },
    h(
      "button",
      {
        type: "button",
        class: "plain",
        id: "language",
        lang: other === "zh" ? "zh-CN" : "en",
        on: {
          click: () => {
            remember("language", other);
            chooseLanguage(other);
            changed(other);
          },
        },
      },
      other === "zh" ? "中文" : "English",
    ),
    h(
      "button",
      {
        type: "button",
        class: "plain",
        id: "theme",
        "aria-label": t("shell.dark"),
        "aria-pressed": String(isDark()),
        title: t("shell.dark"),
        on: {
          click: () => {
            switchTheme();
            refresh();
          },
        },
      },
      icon(isDark() ? SUN : MOON),
    ),
  );
}
