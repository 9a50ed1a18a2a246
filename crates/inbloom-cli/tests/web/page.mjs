// The page of a server in a real browser. node page.mjs HTTP_ADDRESS RESP_PORT INBLOOM
//
// With SCREENSHOTS=FOLDER it also writes every screen in both themes, widths and languages there.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { launch, openPage, send, seriousFindings } from "./browser.mjs";
import { agreesWithTheCommandLine, planInputs } from "./plans.mjs";

const [address, port, inbloom] = process.argv.slice(2);
const base = `http://${address}/`;
const HOSTILE = [
  "<img src=x onerror=alert(1)>",
  '"><script>alert(2)</script>',
  "javascript:alert(3)",
  "../../etc/passwd",
  "..",
  "a b+c%2F&d=e#f?g",
  "\u202egpj.exe",
  Buffer.from([0x66, 0xff, 0x00, 0xfe]),
];

const browser = await launch();

async function calculatorAgreesWithTheCommandLine() {
  const { page, close } = await openPage(browser);
  await agreesWithTheCommandLine(page, inbloom, planInputs(), {
    address: (query) => `${base}#/calculator?${query}`,
    isShown: () => true,
  });
  await close();
}

async function calculatorIsInTheAddress() {
  const { page, close } = await openPage(browser);
  await page.goto(`${base}#/calculator`);
  await page.fill("#field-items", "10e9");
  await page.fill("#field-rate", "1e-4");
  await page.getByLabel("never change after it is built").check();
  await page.waitForFunction(() => location.hash.includes("need=static"));
  const link = page.url();
  assert.match(link, /items=10e9/);
  assert.match(link, /rate=1e-4/);
  const line = async (other) => {
    await other.waitForSelector(".results:not([aria-busy]) .hero-line");
    return other.textContent(".hero-line");
  };
  await page.waitForFunction(() =>
    document.querySelector(".hero-line")?.textContent.startsWith("Ribbon"),
  );
  const here = await line(page);
  const second = await openPage(browser);
  await second.page.goto(link);
  assert.equal(await line(second.page), here);
  assert.equal(await second.page.inputValue("#field-items"), "10e9");
  await second.close();
  await close();
}

async function calculatorExplainsWhatIsWrong() {
  const { page, close } = await openPage(browser, { expected: /status of 4\d\d/ });
  await page.goto(`${base}#/calculator`);
  await page.fill("#field-items", "many");
  await page.waitForSelector("#field-items[aria-invalid=true]");
  assert.match(await page.textContent("#hint-items"), /not a number/);
  await page.fill("#field-items", "1M");
  await page.fill("#field-bytes", "1k");
  await page.waitForSelector(".results .notice li");
  assert.match(await page.textContent(".results .notice"), /reach a rate of/);
  // What is out of date is dimmed, and the reason is not.
  const opacity = await page.locator(".results .notice").evaluate((node) => {
    let product = 1;
    for (; node; node = node.parentElement) product *= Number(getComputedStyle(node).opacity);
    return product;
  });
  assert.equal(opacity, 1);
  await page.fill("#field-bytes", "");
  await page.waitForSelector(".results:not(.stale) .hero-line");
  // The field says its name, and the message is in the language of the page.
  await page.fill("#field-items", "many");
  await page.waitForSelector("#field-items[aria-invalid=true]");
  assert.doesNotMatch(await page.textContent("#hint-items"), /'items'/);
  await page.click("text=中文");
  await page.waitForFunction(() =>
    document.querySelector("#hint-items").textContent.startsWith("不是数字"),
  );
  await page.fill("#field-items", "1M");
  await page.fill("#field-bytes", "1k");
  await page.waitForSelector(".results .notice li");
  assert.match(await page.textContent(".results .notice"), /误判率只能达到/);
  assert.equal(await page.locator(".results [lang=en]").count(), 0);
  await page.click("text=English");
  // Memory that makes a filter of no use is a warning, not a recommendation.
  await page.goto(`${base}#/calculator?items=1M&bytes=1k`);
  await page.waitForSelector(".results .notice >> text=too little memory");
  assert.equal(await page.locator(".hero, .commands, .chart").count(), 0);
  await close();
}

async function presetsAndCommandsCanBeCopied() {
  const { page, context, close } = await openPage(browser);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(`${base}#/calculator`);
  await page.waitForSelector(".presets");
  for (const name of [
    "Web crawler",
    "Cache guard",
    "Ten-billion blacklist",
    "Breached passwords",
    "Seen items per user",
  ]) {
    await page.click(`.presets >> text=${name}`);
    await page.waitForSelector(`.presets [aria-pressed=true] >> text=${name}`);
    await page.waitForSelector(".results:not([aria-busy]) .hero-line b");
    assert.equal(await page.$(".results .notice"), null, name);
  }
  for (const [tab, expected] of [
    ["Command line", "inbloom "],
    ["BF.RESERVE", "BF.RESERVE "],
    ["Rust", "Plan::"],
    ["Python", "redis"],
  ]) {
    await page.click(`[role=tab] >> text=${tab}`);
    await page.click("#copy");
    await page.waitForFunction(() => document.getElementById("copy").textContent === "Copied");
    assert.ok((await page.evaluate(() => navigator.clipboard.readText())).includes(expected), tab);
  }
  await close();
}

async function filterIsSeenChanging() {
  await send(port, [["BF.RESERVE", "live", "0.001", "100000"]]);
  const { page, close } = await openPage(browser);
  await page.goto(`${base}#/filters?q=live`);
  await page.click("a.name >> text=live");
  await page.waitForSelector(".tiles");
  const tile = (index) => page.textContent(`.tile:nth-child(${index}) .tile-value`);
  assert.match(await tile(1), /^0 /);
  const keys = (from, to) => Array.from({ length: to - from }, (_, index) => `key:${from + index}`);
  await send(port, [["BF.MADD", "live", ...keys(0, 5000)]]);
  await page.waitForFunction(() =>
    /^(5k|4\.9\dk|4,9\d\d) /.test(document.querySelector(".tile-value").textContent),
  );
  const fill = await tile(2);
  await send(port, [
    ["BF.MADD", "live", ...keys(5000, 60000)],
    ["BF.MEXISTS", "live", ...keys(50000, 70000)],
  ]);
  await page.waitForFunction(
    (before) => document.querySelector(".tile:nth-child(2) .tile-value").textContent !== before,
    fill,
  );
  // Half of what was asked for was there, and the charts have it.
  await page.waitForFunction(() =>
    /^(49|50)\.\d%/.test(document.querySelector(".tile:nth-child(6) .tile-note").textContent),
  );
  await page.waitForFunction(
    () => document.querySelectorAll(".history path.line[d^=M]").length >= 4,
  );
  await page.fill("#key", "key:7");
  await page.press("#key", "Enter");
  await page.waitForSelector(".verdict.yes");
  assert.match(await page.textContent(".positions"), /(\d+) of \1 tested bits are set/);
  await page.fill("#key", "never added");
  await page.press("#key", "Enter");
  await page.waitForSelector(".verdict.no");
  assert.match(await page.textContent(".verdict"), /certainly not/);
  await send(port, [["DEL", "live"]]);
  await page.waitForSelector("text=This filter is gone");
  // The browser reports the answer 404, and nothing else.
  await close().catch((error) => assert.doesNotMatch(error.message, /pageerror|TypeError/));
}

async function hostileNamesAndKeysAreText() {
  await send(
    port,
    HOSTILE.map((name) => ["BF.ADD", name, "<b>key</b>"]),
  );
  const { page, close } = await openPage(browser);
  for (const name of HOSTILE) {
    const text = Buffer.isBuffer(name) ? "f\\xff" : name;
    await page.goto(`${base}#/filters?q=${encodeURIComponent(Buffer.isBuffer(name) ? "f" : name)}`);
    const link = page.locator("a.name bdi", { hasText: text }).first();
    await link.waitFor();
    if (!Buffer.isBuffer(name)) assert.equal(await link.textContent(), name);
    await link.click();
    await page.waitForSelector(".tiles");
    assert.ok((await page.textContent("h1")).includes(text));
    await page.fill("#key", "<b>key</b>");
    await page.press("#key", "Enter");
    await page.waitForSelector(".verdict.yes");
    assert.equal(await page.textContent(".verdict .word"), "<b>key</b>");
    assert.equal(
      await page.evaluate(() => document.querySelectorAll("img, main script, main b b").length),
      0,
    );
  }
  await close();
}

async function tenThousandFiltersCanBeSearched() {
  const names = Array.from({ length: 10000 }, (_, index) => [
    "BF.RESERVE",
    `user:${index}`,
    "0.01",
    "100",
  ]);
  await send(port, names);
  await send(port, [
    ["BF.MADD", "user:777", ...Array.from({ length: 90 }, (_, index) => String(index))],
  ]);
  const { page, close } = await openPage(browser);
  await page.goto(`${base}#/filters`);
  await page.waitForFunction(() =>
    /10,\d\d\d/.test(document.querySelector(".head-count")?.textContent),
  );
  assert.ok((await page.$$("table.list tbody tr")).length <= 100);
  await page.fill("#search", "user:77");
  await page.waitForFunction(() =>
    /of 111$/.test(document.querySelector(".pager")?.textContent.replace(/Previous|Next/g, "")),
  );
  await page.click(".sort >> text=Used");
  await page.waitForFunction(
    () => document.querySelector("table.list tbody bdi")?.textContent === "user:777",
  );
  assert.match(page.url(), /q=user%3A77&sort=used/);
  await page.click(".pager >> text=Next");
  await page.waitForFunction(() =>
    document.querySelector(".pager").textContent.startsWith("51–100"),
  );
  // A database without filters says so, and is the one that is chosen.
  await page.goto(`${base}#/filters?db=9`);
  await page.waitForSelector("text=This database has no filters.");
  assert.equal(await page.inputValue("#db"), "9");
  await close();
}

async function keyboardIsEnough() {
  await send(port, [["BF.ADD", "keyboard", "alice"]]);
  const { page, close } = await openPage(browser);
  await page.goto(`${base}#/filters`);
  await page.waitForSelector("table.list");
  const focused = (selector) =>
    page.evaluate((wanted) => document.activeElement.matches(wanted), selector);
  // Tabs on until the focus is where it should be, and is visible wherever it stops.
  const tabTo = async (selector, most = 40) => {
    for (let step = 0; step < most; step += 1) {
      await page.keyboard.press("Tab");
      const outline = await page.evaluate(
        () => getComputedStyle(document.activeElement).outlineStyle,
      );
      assert.notEqual(outline, "none", await page.evaluate(() => document.activeElement.outerHTML));
      if (await focused(selector)) return;
    }
    assert.fail(`the focus does not reach ${selector}`);
  };
  await tabTo(".skip", 1);
  await page.keyboard.press("Enter");
  assert.ok(await focused("main"));
  await tabTo("#search");
  await page.keyboard.type("keyboard");
  await page.waitForFunction(() => document.querySelectorAll("table.list tbody tr").length === 1);
  assert.ok(await focused("#search"), "a refresh keeps the focus");
  await tabTo("a.name");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".tiles");
  assert.ok(await focused("main"), "a new screen has the focus");
  await tabTo("#key");
  await page.keyboard.type("alice");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".verdict.yes");
  await tabTo(".segments button:nth-child(2)");
  await page.keyboard.press("Space");
  await page.waitForSelector(".segments button:nth-child(2)[aria-pressed=true]");
  // Up to the navigation and into the calculator.
  await page.goto(`${base}#/health`);
  await page.waitForSelector(".verdict-card");
  await page.keyboard.press("Shift+Tab");
  for (let step = 0; step < 8 && !(await focused('.nav a[href^="#/calculator"]')); step += 1)
    await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  // A new screen takes the focus once it is drawn, and would take it from a field further down.
  await page.waitForSelector(".results:not([aria-busy]) table.kinds input");
  await page.waitForSelector("main:focus");
  await tabTo("table.kinds input");
  const chosen = await page.evaluate(() => document.activeElement.value);
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction((before) => {
    const radio = document.querySelector("table.kinds input:checked");
    return (
      radio &&
      radio.value !== before &&
      document.querySelector(".results:not([aria-busy]) .eyebrow")?.textContent === "Your choice"
    );
  }, chosen);
  await tabTo("[role=tab]");
  await page.keyboard.press("ArrowRight");
  await page.waitForSelector("#tab-reserve[aria-selected=true]:focus");
  await tabTo("#copy");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("copy").textContent === "Copied");
  await close();
}

async function languageAndThemeAreKept() {
  const { page, close } = await openPage(browser, { colorScheme: "dark" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.goto(`${base}#/health`);
  await page.waitForSelector(".verdict-card");
  const dark = await ground();
  await page.click("#theme");
  await page.waitForSelector("#theme[aria-pressed=false]");
  assert.notEqual(await ground(), dark);
  assert.equal(await page.evaluate(() => document.documentElement.lang), "en");
  await page.click("#language");
  await page.waitForSelector("h1:text('运行状况')");
  assert.equal(await page.evaluate(() => document.documentElement.lang), "zh-CN");
  assert.match(page.url(), /lang=zh/);
  await page.goto("about:blank");
  await page.goto(base);
  await page.waitForSelector("h1:text('过滤器')");
  assert.notEqual(await ground(), dark);
  await page.goto(`${base}#/learn?lang=en`);
  await page.waitForSelector("h1:text('How it works')");
  await close();
  const chinese = await openPage(browser, { locale: "zh-CN" });
  await chinese.page.goto(base);
  await chinese.page.waitForSelector("h1:text('过滤器')");
  await chinese.close();
}

async function silenceIsReported() {
  const { page, context, close } = await openPage(browser, {
    expected: /ERR_INTERNET_DISCONNECTED/,
  });
  await page.goto(`${base}#/health`);
  await page.waitForSelector(".verdict-card");
  await context.setOffline(true);
  await page.waitForSelector("[role=alert] >> text=has not answered");
  await page.waitForSelector(".verdict-card");
  await context.setOffline(false);
  await page.waitForSelector("[role=alert]", { state: "detached" });
  await close();
}

async function smallFiltersTeach() {
  const { page, close } = await openPage(browser);
  await page.goto(`${base}#/learn`);
  const say = async (panel, word, button) => {
    await page.fill(`#word-${panel}`, word);
    await page.click(`section[aria-labelledby=title-${panel}] .toy-form >> text=${button}`);
    // The page draws in the next frame.
    await page.evaluate(
      () => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn))),
    );
    return page.textContent(`section[aria-labelledby=title-${panel}] .verdict`);
  };
  assert.match(await say("bloom", "tulip", "Add"), /tulip sets the bits/);
  assert.match(await say("bloom", "tulip", "Ask"), /probably there/);
  await page.click("text=Start again >> nth=0");
  assert.match(await say("bloom", "tulip", "Ask"), /certainly not there/);
  for (let step = 0; step < 3; step += 1) await page.click("text=Add 8 words");
  await page.click("text=Find a false positive");
  await page.waitForSelector(".verdict.false");
  assert.match(await say("counting", "rose", "Remove"), /is removed/);
  assert.match(await say("counting", "iris", "Ask"), /probably there/);
  assert.match(await say("counting", "lily", "Ask"), /probably there/);
  assert.match(await say("counting", "rose", "Remove"), /nothing is removed/);
  assert.match(await say("window", "tulip", "Add"), /newest/);
  for (let step = 0; step < 3; step += 1) await page.click("text=Let time pass");
  assert.match(await say("window", "tulip", "Ask"), /3 days ago/);
  await page.click("text=Let time pass");
  await page.waitForSelector("text=/Forgotten: .*tulip/");
  assert.match(await say("window", "tulip", "Ask"), /in no generation/);
  // The laws of the small filters, on many words.
  const broken = await page.evaluate(async () => {
    const { ToyBloom, ToyCounting, ToyWindow, inventWords } = await import("./toy.js");
    const words = [...inventWords(5)].slice(0, 60);
    const [bloom, counting, window] = [
      new ToyBloom(512),
      new ToyCounting(512),
      new ToyWindow(4, 512),
    ];
    const problems = [];
    for (const word of words) {
      bloom.add(word);
      counting.add(word);
      window.add(word);
    }
    for (const word of words) {
      if (!bloom.contains(word) || !counting.contains(word) || window.age(word) !== 0)
        problems.push(`lost ${word}`);
    }
    const kept = [...new Set(words.slice(30))].filter((word) => !words.slice(0, 30).includes(word));
    for (const word of new Set(words.slice(0, 30))) counting.remove(word);
    for (const word of kept) if (!counting.contains(word)) problems.push(`removed ${word} too`);
    for (const word of kept) counting.remove(word);
    if (counting.counters.some((counter) => counter !== 0)) problems.push("counters are left");
    for (let step = 0; step < 4; step += 1) window.tick();
    if (words.some((word) => window.age(word) >= 0)) problems.push("a window does not forget");
    return problems;
  });
  assert.deepEqual(broken, []);
  await close();
}

// Every screen with something on it: its route, and what is there when it is ready.
const SCREENS = {
  filters: ["#/filters", "table.list"],
  filter: ["#/filters/shown", ".history .plot svg"],
  window: ["#/filters/shown-window", ".history .plot svg"],
  calculator: ["#/calculator?items=10M&rate=0.1%25", ".results:not([aria-busy]) .hero-line"],
  health: ["#/health", ".verdict-card"],
  learn: ["#/learn", ".toy"],
};

async function fillShownFilters() {
  const keys = Array.from({ length: 30000 }, (_, index) => `shown:${index}`);
  await send(port, [
    ["BF.RESERVE", "shown", "0.001", "40000"],
    ["BF.MADD", "shown", ...keys],
    ["BF.RESERVE", "shown-window", "0.001", "100000", "WINDOW", "7d"],
    ["BF.MADD", "shown-window", ...keys.slice(0, 9000)],
  ]);
}

let isFilled = false;

async function show(page, name, language) {
  if (!isFilled) await fillShownFilters();
  isFilled = true;
  const [route, ready] = SCREENS[name];
  await page.goto(`${base}${route}${route.includes("?") ? "&" : "?"}lang=${language}`);
  await page.waitForSelector(ready);
  if (name === "filter") {
    await page.fill("#key", "shown:1");
    await page.press("#key", "Enter");
    await page.waitForSelector(".positions");
  }
}

async function screensAreAccessible() {
  for (const width of [1280, 360]) {
    for (const colorScheme of ["light", "dark"]) {
      const viewport = { width, height: 800 };
      const { page, close } = await openPage(browser, { viewport, colorScheme });
      for (const name of Object.keys(SCREENS)) {
        await show(page, name, "en");
        assert.deepEqual(await seriousFindings(page), [], `${name} ${width} ${colorScheme}`);
      }
      await close();
    }
  }
}

async function screensFitAndLookRight() {
  const folder = process.env.SCREENSHOTS;
  if (folder) mkdirSync(folder, { recursive: true });
  for (const width of [1280, 640, 360]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await openPage(browser, {
        viewport: { width, height: 800 },
        colorScheme,
      });
      for (const language of ["en", "zh"]) {
        for (const name of Object.keys(SCREENS)) {
          await show(page, name, language);
          const excess = await page.evaluate(
            () => document.documentElement.scrollWidth - innerWidth,
          );
          assert.ok(excess <= 0, `${name} is ${excess} pixels too wide at ${width}, ${language}`);
          const raw = await page.evaluate(() =>
            document.body.innerText.match(/\b[a-z]+\.[a-z]+[A-Z]\w*|undefined|NaN|\[object/),
          );
          assert.equal(raw, null, `${name}, ${language}`);
          if (folder && width !== 640) {
            await page.screenshot({
              path: `${folder}/${name}-${width}-${colorScheme}-${language}.png`,
              fullPage: true,
            });
          }
        }
      }
      await close();
    }
  }
}

const cases = {
  calculatorAgreesWithTheCommandLine,
  calculatorIsInTheAddress,
  calculatorExplainsWhatIsWrong,
  presetsAndCommandsCanBeCopied,
  filterIsSeenChanging,
  hostileNamesAndKeysAreText,
  tenThousandFiltersCanBeSearched,
  keyboardIsEnough,
  languageAndThemeAreKept,
  silenceIsReported,
  smallFiltersTeach,
  screensAreAccessible,
  screensFitAndLookRight,
};
const only = process.env.ONLY?.split(",");
for (const [name, run] of Object.entries(cases)) {
  if (only && !only.includes(name)) continue;
  const began = Date.now();
  await run();
  console.log(`${name} ${((Date.now() - began) / 1000).toFixed(1)} s`);
}
await browser.close();
console.log("all cases passed");
