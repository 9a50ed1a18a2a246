// The file of `inbloom calculator` in a real browser. node standalone.mjs FILE INBLOOM
//
// With SCREENSHOTS=FOLDER it also writes pictures there.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { launch, openPage, seriousFindings } from "./browser.mjs";
import { agreesWithTheCommandLine, planInputs } from "./plans.mjs";

const [file, inbloom] = process.argv.slice(2);
const base = pathToFileURL(file).href;
const KINDS = ["classic", "blocked"];
const browser = await launch();

// Every number is that of the command line, for the two kinds that the file knows.
async function fileAgreesWithTheCommandLine() {
  const { page, close } = await openPage(browser);
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  const inputs = planInputs().filter((input) => input.universe === undefined);
  await agreesWithTheCommandLine(page, inbloom, inputs, {
    address: (query) => `${base}#${query}`,
    isShown: (kind) => KINDS.includes(kind),
  });
  assert.deepEqual(
    requests.filter((url) => url.split("#")[0] !== base),
    [],
    "the file loads nothing else",
  );
  await close();
}

async function fileWorksWithoutAServer() {
  const { page, context, close } = await openPage(browser);
  await context.setOffline(true);
  await page.goto(base);
  await page.click(".presets >> text=Ten-billion blacklist");
  await page.waitForSelector(".presets [aria-pressed=true] >> text=Ten-billion blacklist");
  await page.waitForSelector(".results:not([aria-busy]) .hero-line b");
  assert.match(page.url(), /#items=10e9&rate=0.01%25$/);
  assert.equal(await page.locator("fieldset.needs, details.more").count(), 0);
  await page.fill("#field-items", "many");
  await page.waitForSelector("#field-items[aria-invalid=true]");
  await page.fill("#field-items", "3M");
  await page.click("[role=tab] >> text=BF.RESERVE");
  await page.waitForFunction(() =>
    document.querySelector("#command-text").textContent.startsWith("BF.RESERVE filter 0.0001 3000000"),
  );
  await page.click("#language");
  await page.waitForSelector("h1:text('计算器')");
  assert.match(page.url(), /lang=zh/);
  assert.match(await page.textContent("#command-text"), /3000000/, "a language keeps the inputs");
  await page.reload();
  await page.waitForSelector("h1:text('计算器')");
  assert.equal(await page.inputValue("#field-items"), "3M");
  await close();
}

async function fileIsAccessibleAndFits() {
  const folder = process.env.SCREENSHOTS;
  if (folder) mkdirSync(folder, { recursive: true });
  for (const width of [1280, 360]) {
    for (const colorScheme of ["light", "dark"]) {
      const viewport = { width, height: 800 };
      const { page, close } = await openPage(browser, { viewport, colorScheme });
      for (const language of ["en", "zh"]) {
        await page.goto(`${base}#items=10M&rate=0.1%25&lang=${language}`);
        await page.waitForSelector(".results:not([aria-busy]) .hero-line");
        assert.deepEqual(await seriousFindings(page), []);
        const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(excess <= 0, `${excess} pixels too wide at ${width}, ${language}`);
        if (folder) {
          const path = `${folder}/standalone-${width}-${colorScheme}-${language}.png`;
          await page.screenshot({ path, fullPage: true });
        }
      }
      await close();
    }
  }
}

const cases = { fileAgreesWithTheCommandLine, fileWorksWithoutAServer, fileIsAccessibleAndFits };
const only = process.env.ONLY?.split(",");
for (const [name, run] of Object.entries(cases)) {
  if (only && !only.includes(name)) continue;
  await run();
  console.log(name);
}
await browser.close();
console.log("all cases passed");
