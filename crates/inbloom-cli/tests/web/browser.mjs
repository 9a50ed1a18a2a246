// What the tests of the page share: a browser, a page that fails on any complaint, and a client that
// sends bytes to the server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";

const require = createRequire(process.cwd() + "/");
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

// Debian's browser, with nothing that would call home.
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

// A page of its own context. Errors, violations of the policy and dialogs are collected, and `close`
// fails if there were any; `expected` matches those that are part of a test.
export async function openPage(browser, { expected, ...options } = {}) {
  const context = await browser.newContext({ locale: "en-US", ...options });
  // The machine may be busy with other tests.
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  const complaints = [];
  const complain = (text) => {
    if (!expected?.test(text)) complaints.push(text);
  };
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complain(message.text());
  });
  page.on("pageerror", (error) => complain(error.stack));
  page.on("dialog", (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  // Without this, a failure in the page is only seen as a wait that ends.
  page.on("pageerror", (error) => console.error(error.stack));
  const close = async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  };
  return { page, context, close };
}

// The serious findings of axe-core on the page as it is.
export async function seriousFindings(page) {
  // By the debugger: the page's policy would not let a script of ours in.
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(
        ({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`)}`,
      );
  });
}

// Sends commands, each a list of strings or buffers, and returns when all are answered.
export async function send(port, commands) {
  const socket = net.connect(port, "127.0.0.1");
  const parts = commands.flatMap((words) => [
    `*${words.length}\r\n`,
    ...words.flatMap((word) => {
      const bytes = Buffer.from(word);
      return [`$${bytes.length}\r\n`, bytes, "\r\n"];
    }),
  ]);
  // The reply of PING comes last.
  parts.push("PING\r\n");
  socket.write(Buffer.concat(parts.map((part) => Buffer.from(part))));
  let replies = "";
  for await (const bytes of socket) {
    replies += bytes.toString("latin1");
    if (replies.endsWith("+PONG\r\n")) break;
  }
  assert.ok(!/^-/m.test(replies), replies);
}
