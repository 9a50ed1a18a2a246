// Whether the page has a translation for everything that the planner and the parsers of its fields answer.
// node refusals.mjs MODULE SENTENCES
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// What the module expects of a browser.
globalThis.document ??= { documentElement: {} };
globalThis.navigator ??= {};
const [module, sentences] = process.argv.slice(2);
const { chooseLanguage, refusal } = await import(pathToFileURL(module));

// Words that stay as they are in Chinese: names, and what somebody has entered.
const NAMES = /Ribbon|MiB|GiB|PiB|inbloom plan|remove|grow|forget|merge|static|"\w+"/g;

const all = readFileSync(sentences, "utf8").trim().split("\n");
assert.ok(all.length > 100, `only ${all.length} sentences`);
for (const sentence of all) {
  chooseLanguage("zh");
  const translated = refusal(sentence);
  assert.ok(translated !== null, `no translation of: ${sentence}`);
  const rest = translated.replaceAll(NAMES, "").match(/[A-Za-z]{3,}/);
  assert.equal(rest, null, `${sentence} -> ${translated}`);
  chooseLanguage("en");
  assert.equal(refusal(sentence), sentence);
}

// Whole sentences, so that no part stays in English or is translated where it must not be.
const EXACT = [
  ["at most 10^15 keys", "最多 10^15 个键"],
  ["at most 4096 bits per key", "每键最多 4096 位"],
  [
    "the filter needs 8 bytes, the limit is 1; raise the limit, or plan a smaller filter",
    "过滤器需要 8 字节，上限为 1 字节；请提高上限，或规划更小的过滤器",
  ],
  ['expected a number from 0 to 255, got "one or two"', '需要介于 0 与 255 之间的数，收到的是 "one or two"'],
  ['expected a number from 0 to 255, got "1 to 2"', '需要介于 0 与 255 之间的数，收到的是 "1 to 2"'],
  ['expected a number from 0 to 255, got "classic"', '需要介于 0 与 255 之间的数，收到的是 "classic"'],
  ['expected a number from 0 to 255, got "items"', '需要介于 0 与 255 之间的数，收到的是 "items"'],
  [
    'expected a number from 0 to 255, got "x; expected y"',
    '需要介于 0 与 255 之间的数，收到的是 "x; expected y"',
  ],
  [
    'expected a whole number such as 1000000, 10e9 or 2.5M, at least 1, got "many"',
    '需要至少为 1 的整数，例如 1000000, 10e9 或 2.5M，收到的是 "many"',
  ],
  [
    'expected remove, grow, forget, merge or static, got "fly"',
    '需要以下之一：remove、grow、forget、merge、static，收到的是 "fly"',
  ],
  ['unknown kind "one or two"', '没有名为 "one or two" 的类型'],
  ["probes is 99, but must be 1 to 64 for kind classic", "探测次数为 99，但必须为 1 到 64（经典过滤器）"],
  [
    "probes is 99, but must be 4, 8, 12 or 16, or 8, 16, 24 or 32 with two lines per key",
    "探测次数为 99，但必须为 4, 8, 12 或 16，或在每键两条缓存行时为 8, 16, 24 或 32",
  ],
  ["generations is 99, but must be 1 to 64", "代数为 99，但必须在 1 到 64 之间"],
  ["growth is 3, but must be 2, 4 or 8, or 0 for none", "增长倍数为 3，但必须为 2, 4 或 8，或为 0 表示没有"],
  ["bits is 0, but must be at least 1 and at most 2^56", "位数为 0，但必须至少为 1 且不超过 2^56"],
  // A sentence of which one part has no translation stays as it is, as a whole.
  ["probes is 99, but must be at most what a spoon holds", null],
  ["one or two", null],
  ["what nobody says", null],
];
chooseLanguage("zh");
for (const [sentence, translation] of EXACT) assert.equal(refusal(sentence), translation, sentence);
console.log("all cases passed");
