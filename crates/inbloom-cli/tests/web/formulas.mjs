// The formulas in JavaScript against those in Rust. node formulas.mjs MODULE CASES
//
// CASES has a line of JSON for each input: { parameters, kinds }, where `kinds` are the rows of
// `inbloom plan --json`, or null where no kind can be planned.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [module, cases] = process.argv.slice(2);
const { compareKinds } = await import(pathToFileURL(module));

// Of the last digits of a rate: exp, ln and pow of Rust and of JavaScript may differ in the last bit.
const DIGITS = 1e-9;

function compare(ours, theirs, place) {
  if (typeof theirs === "number" && !Number.isInteger(theirs)) {
    assert.ok(Math.abs(ours - theirs) <= DIGITS * Math.abs(theirs), `${place}: ${ours}, not ${theirs}`);
  } else if (typeof theirs === "object" && theirs !== null) {
    assert.deepEqual(Object.keys(ours).sort(), Object.keys(theirs).sort(), place);
    for (const name of Object.keys(theirs)) compare(ours[name], theirs[name], `${place}.${name}`);
  } else if (place.endsWith(".refused")) {
    assert.equal(typeof ours, "string", place);
  } else {
    assert.equal(ours, theirs, place);
  }
}

// Larger filters are not planned in JavaScript, whose numbers are exact up to here.
const isTooLarge = (row) => row.bits !== null && row.bits > 2 ** 53;

// A search among numbers that are not exact would never end.
assert.equal(compareKinds({ items: "1e15", rate: "1e-12" }).plans.length, 0);

let [planned, refused, tooLarge] = [0, 0, 0];
for (const line of readFileSync(cases, "utf8").trimEnd().split("\n")) {
  const { parameters, kinds } = JSON.parse(line);
  const place = JSON.stringify(parameters);
  const answer = compareKinds(parameters);
  if (kinds?.some(isTooLarge)) {
    tooLarge += 1;
    continue;
  }
  assert.equal(answer.plans.length === 0, kinds === null, `${place} can be planned`);
  if (kinds === null) refused += 1;
  else {
    compare(answer.kinds, kinds, place);
    planned += 1;
  }
}
assert.ok(planned > 20 * tooLarge, `${tooLarge} are too large`);
console.log(`${planned} planned, ${refused} refused, ${tooLarge} too large: all cases passed`);
