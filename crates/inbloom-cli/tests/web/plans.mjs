// What the tests of the calculator share: inputs, and a comparison of the page with `inbloom plan`.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";

// The options of the command line, by the fields of the page.
const OPTIONS = {
  items: "-n",
  rate: "-p",
  bytes: "--bytes",
  probes: "-k",
  universe: "--universe",
};

// The rows of the table of kinds, as numbers, and the kinds that are refused.
function readKinds(page) {
  return page.$$eval("table.kinds tbody tr", (rows) =>
    rows.map((row) => ({
      kind: row.dataset.key,
      refused: row.classList.contains("refused"),
      bytes: row.querySelector(".size-number")?.title.replace(/\D/g, "") ?? null,
      cells: [...row.querySelectorAll("td.number")].map((cell) => cell.textContent),
    })),
  );
}

const shownRate = (text) => (text.endsWith("%") ? Number(text.slice(0, -1)) / 100 : Number(text));

// Opens the calculator with each input, and compares every number of its table with
// `inbloom plan --json`. `isShown` says which kinds the page has.
export async function agreesWithTheCommandLine(page, inbloom, inputs, { address, isShown }) {
  for (const input of inputs) {
    await page.goto(address(new URLSearchParams(input)));
    await page.waitForFunction((wanted) => {
      const fields = Object.entries(wanted);
      const isShown = fields.every(
        ([name, value]) => document.getElementById(`field-${name}`)?.value === value,
      );
      return isShown && document.querySelector(".results:not([aria-busy])");
    }, input);
    const shown = await readKinds(page);
    const words = Object.entries(input).flatMap(([name, value]) => [OPTIONS[name], value]);
    const all = JSON.parse(execFileSync(inbloom, ["plan", "--json", ...words])).kinds;
    const kinds = all.filter(({ kind }) => isShown(kind));
    const where = JSON.stringify(input);
    assert.deepEqual(
      shown.map(({ kind }) => kind),
      kinds.map(({ kind }) => kind),
      where,
    );
    for (const [index, plan] of kinds.entries()) {
      const row = shown[index];
      const place = `${where} ${plan.kind}`;
      assert.equal(row.refused, plan.refused !== undefined, place);
      if (row.refused) continue;
      const [bits, probes, lines, rate] = row.cells;
      assert.equal(row.bytes, plan.bytes === null ? "" : String(plan.bytes), place);
      assert.equal(bits, plan.bits_per_key.toFixed(2), place);
      assert.equal(probes, plan.probes === null ? "–" : String(plan.probes), place);
      assert.equal(lines, String(plan.cache_lines), place);
      // Three digits are shown.
      assert.ok(
        Math.abs(shownRate(rate) - plan.rate) <= 0.0051 * plan.rate,
        `${place}: ${rate}, ${plan.rate}`,
      );
    }
  }
}

// Fifty inputs: every combination of what can be given, with numbers of all sizes and in all spellings.
export function planInputs() {
  const items = ["1", "10", "123", "5k", "1M", "2.5M", "1e9", "10e9"];
  const rates = ["0.1", "1%", "0.001", "0.01%", "1e-6"];
  const sizes = ["1000", "64KiB", "1M", "64MiB", "25G"];
  const inputs = items.flatMap((count, index) => [
    { items: count, rate: rates[index % 5] },
    { items: count, rate: rates[(index + 2) % 5] },
  ]);
  for (const [index, bytes] of sizes.entries()) {
    inputs.push({ bytes, rate: rates[index] }, { bytes, rate: rates[(index + 3) % 5] });
    inputs.push({ items: ["500", "40k", "700k", "30M", "10e9"][index], bytes });
  }
  for (const probes of ["4", "8", "12", "16"]) {
    inputs.push({ items: "1M", probes }, { bytes: "10M", probes }, { probes, rate: "1%" });
  }
  inputs.push({ items: "1M", rate: "1%", bytes: "10M" }, { items: "1M", bytes: "2M", probes: "8" });
  inputs.push({ universe: "10M" }, { items: "1M" }, { items: "1M", rate: "1%", universe: "4G" });
  inputs.push({ items: "3" }, { items: "1_000_000", rate: "0.5%" });
  assert.ok(inputs.length >= 50);
  return inputs.slice(0, 50);
}
