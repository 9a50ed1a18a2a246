// The words of the page, in two languages. `t` fills a sentence; `rich` fills one that has nodes in
// it.

import { en } from "./en.js";
import { zh } from "./zh.js";

const TEXTS = { en, zh };
let chosen = "en";

// The language in use: "en" or "zh".
export function language() {
  return chosen;
}

// Chooses a language, or the reader's own if it is not one of ours.
export function chooseLanguage(name) {
  const own = navigator.languages?.some((tag) => tag.toLowerCase().startsWith("zh")) ? "zh" : "en";
  chosen = Object.hasOwn(TEXTS, name ?? "") ? name : own;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
}

// Whether there is a text under this key.
export function hasText(key) {
  return Object.hasOwn(TEXTS[chosen], key);
}

// The name of a kind, also of one that this page has not heard of.
export function kindName(kind) {
  return hasText(`kind.${kind}`) ? t(`kind.${kind}`) : kind;
}

// The text under a key, with `{name}` replaced by `values.name`.
export function t(key, values = {}) {
  return rich(key, values).join("");
}

// The same as a list of strings and nodes, where a value may be a node.
export function rich(key, values = {}) {
  const text = TEXTS[chosen][key] ?? key;
  return text
    .split(/\{(\w+)\}/)
    .map((part, index) => (index % 2 === 0 ? part : (values[part] ?? "")))
    .filter((part) => part !== "");
}
