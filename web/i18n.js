// The words of the page, in two languages. `t` fills a sentence; `rich` fills one that has nodes in
// it.

import { en } from "./en.js";
import { zh } from "./zh.js";

const TEXTS = { en, zh };
// The sentences of the planner, and the parts of them by the name of the value that they stand for:
// each a list of keys with the pattern that finds the text.
const SENTENCES = "";
const REFUSALS = {};
for (const [key, text] of Object.entries(en)) {
  const [group, ...names] = key.split(".");
  if (group !== "refusal") continue;
  const part = names.length > 1 ? names[0] : SENTENCES;
  (REFUSALS[part] ??= []).push([key, pattern(text)]);
}
let chosen = "en";

function pattern(text) {
  const parts = text.split(/\{(\w+)\}/).map((part, index) => {
    return index % 2 === 0 ? part.replace(/[^\w ]/g, "\\$&") : `(?<${part}>.+?)`;
  });
  return new RegExp(`^${parts.join("")}$`);
}

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

// A sentence of the planner in the language in use, or null if it has no complete translation.
export function refusal(sentence) {
  return chosen === "en" ? sentence : translated(SENTENCES, sentence);
}

function translated(part, text) {
  for (const [key, pattern] of REFUSALS[part] ?? []) {
    const found = pattern.exec(text);
    if (!found) continue;
    const values = Object.entries(found.groups ?? {}).map(([name, value]) => [
      name,
      valueOf(name, value),
    ]);
    if (values.every(([, value]) => value !== null)) return t(key, Object.fromEntries(values));
  }
  return null;
}

// A value of a sentence. What the reader has entered stays as it is; numbers do too, but not words.
function valueOf(name, value) {
  if (name === "text") return value;
  if (name === "kind") return kindName(value);
  return translated(name, value) ?? (/\b[a-z]{3}/.test(value) ? null : value);
}
