// What an operator asks at 3 a.m., in one screen: is it up, is anything lost, is there room, who is
// here, what is slow.

import { ask, poll } from "./api.js";
import { meter } from "./charts.js";
import { h } from "./dom.js";
import { hasText, t } from "./i18n.js";
import { bytes, count, exact, moment, perSecond, rate, share, span } from "./numbers.js";

const REFRESH = 1000;
// From this share of a limit on, it is worth a warning.
const NEAR = 0.9;

// Makes the screen.
export function healthScreen(app) {
  const state = { health: null };
  const load = async (signal) => {
    try {
      state.health = await ask("health", { signal });
      app.heard();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      app.failed(error);
    }
    app.refresh();
  };
  const polling = poll(load, REFRESH);
  return {
    title: () => t("health.title"),
    stop: polling.stop,
    view: () =>
      state.health
        ? view(app, state.health)
        : h(
            "div",
            null,
            h("header", { class: "page-head" }, h("h1", null, t("health.title"))),
            h("div", { class: "card loading", "aria-busy": "true" }, t("shell.loading")),
          ),
  };
}

function view(app, health) {
  return h(
    "div",
    { class: "health" },
    h(
      "header",
      { class: "page-head" },
      h("h1", null, t("health.title")),
      h(
        "ul",
        { class: "facts-line" },
        h("li", null, t("health.version", { version: health.version })),
        h("li", null, t("health.uptime", { span: span(health.uptime_seconds) })),
        h("li", null, t("health.filters", { count: exact(health.filters.total) })),
      ),
    ),
    verdict(findings(health)),
    h(
      "div",
      { class: "cards" },
      durability(health),
      memory(health),
      clients(health),
      traffic(health),
    ),
    overTarget(app, health.filters),
    slowLog(health.slow_log),
    h("div", { class: "pair" }, commands(health), clientList(health.clients)),
  );
}

// All that is not as it should be, the worst first: { level, text }.
function findings(health) {
  const { durability: disk, memory: room, clients: who, filters } = health;
  const found = [];
  const add = (level, key, values) => found.push({ level, text: t(key, values) });
  if (health.status === "loading") add("warn", "finding.loading");
  if (health.status === "stopping") add("warn", "finding.stopping");
  for (const { part, reason } of health.troubles) {
    if (part !== "loading")
      add("bad", "finding.trouble", {
        part: hasText(`part.${part}`) ? t(`part.${part}`) : part,
        reason,
      });
  }
  if (disk?.failing && health.troubles.length === 0)
    add("bad", "finding.log", { reason: disk.failing });
  if (disk?.snapshot?.error) add("bad", "finding.snapshot", { reason: disk.snapshot.error });
  if (room.limit && room.used > NEAR * room.limit)
    add(room.used > 0.98 * room.limit ? "bad" : "warn", "finding.memory", {
      share: share(room.used / room.limit),
      limit: bytes(room.limit),
    });
  if (who.connected > NEAR * who.limit)
    add("warn", "finding.clients", { connected: exact(who.connected), limit: exact(who.limit) });
  if (filters.over_target_count > 0)
    add("warn", filters.over_target_count === 1 ? "finding.overTargetOne" : "finding.overTarget", {
      count: exact(filters.over_target_count),
    });
  if (!disk) add("info", "finding.noDisk");
  return found.sort((a, b) => severity(a.level) - severity(b.level));
}

const severity = (level) => ["bad", "warn", "info", "ok"].indexOf(level);

function verdict(found) {
  const worst = found[0]?.level ?? "ok";
  const level = worst === "info" ? "ok" : worst;
  return h(
    "section",
    { class: `verdict-card ${level}`, role: "status" },
    h(
      "p",
      { class: "verdict-line" },
      h("span", { class: `dot ${level}`, "aria-hidden": "true" }),
      t(`verdict.${level}`),
    ),
    found.length
      ? h(
          "ul",
          null,
          found.map(({ level: own, text }) => h("li", { class: own }, text)),
        )
      : null,
  );
}

function rows(entries) {
  return h(
    "dl",
    { class: "rows" },
    entries
      .filter(Boolean)
      .map(([name, value, level]) =>
        h("div", { class: level ?? null }, h("dt", null, t(name)), h("dd", null, value)),
      ),
  );
}

const ago = (then, now) =>
  then === null || then === undefined
    ? t("health.never")
    : t("health.ago", { span: span(Math.max(0, now - then)) });

function durability({ durability: disk, now }) {
  const title = h("h2", null, t("health.durability"));
  if (!disk)
    return h(
      "section",
      { class: "card" },
      title,
      h("p", { class: "big" }, t("health.memoryOnly")),
      h("p", { class: "quiet" }, t("health.memoryOnlyText")),
    );
  const { snapshot } = disk;
  return h(
    "section",
    { class: "card" },
    title,
    h(
      "p",
      { class: `big ${disk.failing ? "bad" : ""}` },
      disk.failing ? t("health.notSaving") : t(`fsync.${disk.fsync}`),
    ),
    rows([
      ["health.lastSync", ago(disk.last_sync, now)],
      [
        "health.lastSnapshot",
        snapshot.running
          ? t("health.running")
          : snapshot.error
            ? t("health.failed")
            : ago(snapshot.last, now),
        snapshot.error ? "bad" : null,
      ],
      snapshot.last
        ? [
            "health.snapshotSize",
            t("health.snapshotIs", {
              filters: exact(snapshot.filters ?? 0),
              size: bytes(snapshot.bytes ?? 0),
            }),
          ]
        : null,
      [
        "health.logSize",
        disk.log_limit
          ? t("health.of", { part: bytes(disk.log_bytes), whole: bytes(disk.log_limit) })
          : bytes(disk.log_bytes),
      ],
      ["health.sinceSnapshot", exact(disk.unsaved_records ?? 0)],
    ]),
  );
}

function memory({ memory: room }) {
  const part = room.limit ? room.used / room.limit : null;
  const level = part > 0.98 ? "bad" : part > NEAR ? "warn" : "ok";
  return h(
    "section",
    { class: "card" },
    h("h2", null, t("health.memory")),
    h(
      "p",
      { class: "big" },
      bytes(room.used),
      room.limit
        ? h("span", { class: "tile-of" }, ` ${t("filter.of", { whole: bytes(room.limit) })}`)
        : null,
    ),
    part === null ? null : meter(part, level, t("filters.usedIs", { share: share(part) })),
    rows([
      ["health.peak", bytes(room.peak)],
      ["health.resident", bytes(room.resident)],
      ["health.clientBuffers", bytes(room.clients)],
      room.filter_limit ? ["health.filterLimit", bytes(room.filter_limit)] : null,
      room.system ? ["health.system", bytes(room.system)] : null,
    ]),
  );
}

function clients({ clients: who }) {
  const warn = (number) => (number > 0 ? "warn" : null);
  return h(
    "section",
    { class: "card" },
    h("h2", null, t("health.clients")),
    h(
      "p",
      { class: "big" },
      exact(who.connected),
      h("span", { class: "tile-of" }, ` ${t("filter.of", { whole: exact(who.limit) })}`),
    ),
    meter(
      who.connected / who.limit,
      who.connected > NEAR * who.limit ? "warn" : "ok",
      t("health.clients"),
    ),
    rows([
      ["health.accepted", exact(who.accepted)],
      ["health.rejected", exact(who.rejected), warn(who.rejected)],
      ["health.evicted", exact(who.evicted), warn(who.evicted)],
      ["health.failedLogins", exact(who.failed_logins), warn(who.failed_logins)],
      ["health.forbidden", exact(who.forbidden), warn(who.forbidden)],
    ]),
  );
}

function traffic({ traffic: flow, process, uptime_seconds: uptime }) {
  return h(
    "section",
    { class: "card" },
    h("h2", null, t("health.traffic")),
    h(
      "p",
      { class: "big" },
      perSecond(flow.commands_per_second),
      h("span", { class: "tile-of" }, ` ${t("health.commandsPerSecond")}`),
    ),
    rows([
      ["health.bytesIn", t("health.each", { size: bytes(Math.round(flow.bytes_in_per_second)) })],
      ["health.bytesOut", t("health.each", { size: bytes(Math.round(flow.bytes_out_per_second)) })],
      ["health.itemsAdded", count(flow.items_added)],
      ["health.itemsAsked", count(flow.items_asked)],
      ["health.errors", exact(flow.errors), flow.errors > 0 ? "warn" : null],
      process
        ? [
            "health.cpu",
            t("health.cpuIs", {
              span: span(process.user_seconds + process.system_seconds),
              share: share((process.user_seconds + process.system_seconds) / Math.max(1, uptime)),
            }),
          ]
        : null,
    ]),
  );
}

function overTarget(app, filters) {
  if (filters.over_target_count === 0) return null;
  return section(
    t("health.overTarget"),
    ["column.name", "column.rate", "column.target", "column.since"],
    filters.over_target.map((row) => [
      filterLink(app, row),
      rate(row.rate),
      rate(row.target_rate),
      row.since ? moment(row.since * 1000) : "–",
    ]),
  );
}

// A link to a filter, or its name alone where it has been renamed since.
function filterLink(app, { path, name, database }) {
  const shown = h("bdi", null, name);
  if (path === null) return shown;
  return h(
    "a",
    { class: "name", href: app.link(`filters/${path}`, { db: database || null }) },
    shown,
  );
}

function slowLog(list) {
  if (list === null) return null;
  if (list.length === 0) return quietSection(t("health.slowLog"), t("health.slowNone"));
  return section(
    t("health.slowLog"),
    ["column.when", "column.took", "column.command", "column.from"],
    list
      .slice(0, 12)
      .map((entry) => [
        moment(entry.at * 1000),
        span(entry.micros / 1e6),
        h("code", null, h("bdi", null, entry.words.join(" "))),
        entry.client || entry.address || "–",
      ]),
  );
}

function commands({ commands: list, errors }) {
  return section(
    t("health.commands"),
    ["column.command", "column.calls", "column.each", "column.failed"],
    list
      .slice(0, 10)
      .map((row) => [
        h("code", null, row.name),
        count(row.calls),
        row.calls > 0 ? span(row.seconds / row.calls) : "–",
        exact(row.failed + row.rejected),
      ]),
    errors.length
      ? h(
          "p",
          { class: "quiet pad" },
          t("health.errorCodes", {
            list: errors.map(({ code, count: times }) => `${code} ${exact(times)}`).join(", "),
          }),
        )
      : null,
  );
}

function clientList({ list }) {
  if (list === null) return null;
  if (list.length === 0) return quietSection(t("health.clientList"), t("health.clientNone"));
  return section(
    t("health.clientList"),
    ["column.address", "column.user", "column.library", "column.last", "column.idle"],
    list
      .slice(0, 10)
      .map((row) => [
        row.address,
        h("bdi", null, row.user ?? "–"),
        h("bdi", null, row.library || row.name || "–"),
        h("code", null, row.last || "–"),
        span(row.idle_seconds),
      ]),
  );
}

// A section that has nothing to list, and says so.
function quietSection(title, text) {
  return h("section", { class: "card" }, h("h2", null, title), h("p", { class: "quiet" }, text));
}

function section(title, head, body, foot) {
  return h(
    "section",
    { class: "card flush" },
    h("h2", null, title),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h(
        "table",
        { class: "plain-table" },
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            head.map((name) => h("th", { scope: "col" }, t(name))),
          ),
        ),
        h(
          "tbody",
          null,
          body.map((cells) =>
            h(
              "tr",
              null,
              cells.map((cell, index) =>
                h(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : null, cell),
              ),
            ),
          ),
        ),
      ),
    ),
    foot ?? null,
  );
}
