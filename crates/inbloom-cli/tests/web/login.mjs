// The page of a server that has users and lets the page write. node login.mjs HTTP_ADDRESS RESP_PORT
//
// The users are `writer` and `reader`, both with the password `secret`.
import assert from "node:assert/strict";
import { launch, openPage, send } from "./browser.mjs";

const [address, port] = process.argv.slice(2);
const base = `http://${address}/`;
const browser = await launch();

await send(port, [
  ["AUTH", "writer", "secret"],
  ["BF.RESERVE", "list", "0.001", "1000"],
]);
const { page, close } = await openPage(browser, { expected: /status of 401/ });
const signIn = async (user, password) => {
  await page.fill("#user", user);
  await page.fill("#password", password);
  await page.press("#password", "Enter");
};

// Nothing is shown before somebody signs in, and a wrong password is reported.
await page.goto(`${base}#/filters/list`);
await page.waitForSelector(".login");
assert.ok(!(await page.textContent("body")).includes("Capacity"));
await signIn("writer", "wrong");
await page.waitForSelector("text=does not accept");
await signIn("writer", "secret");
await page.waitForSelector(".tiles");
await page.waitForSelector("text=Signed in as writer");

// A writer adds a key, sees it counted, and finds it again.
await page.fill("#key", "alice");
await page.click("button >> text=Add");
await page.waitForSelector(".verdict.add");
assert.match(await page.textContent(".verdict"), /alice is added/);
await page.waitForFunction(() => /^1 /.test(document.querySelector(".tile-value").textContent));
await page.click("button >> text=Add");
await page.waitForSelector("text=was probably there already");
await page.fill("#key", "bob");
await page.press("#key", "Enter");
await page.waitForSelector(".verdict.no");

// Signing out forgets the password; a reader has no button to add.
await page.click("text=Sign out");
await page.waitForSelector(".login");
await signIn("reader", "secret");
await page.waitForSelector(".tiles");
assert.equal(await page.locator("button", { hasText: /^Add$/ }).count(), 0);
await page.reload();
await page.waitForSelector(".login");

await close();
await browser.close();
console.log("all cases passed");
