// node-redis, the newest, with its defaults: what its users do. node node_redis.mjs PORT
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { createClient } = createRequire(process.cwd() + "/")("redis");
const client = createClient({ socket: { host: "127.0.0.1", port: Number(process.argv[2]) } });
client.on("error", (error) => {
  throw error;
});
await client.connect();
assert.equal(await client.ping(), "PONG");

await client.bf.reserve("node:bloom", 0.001, 1000);
assert.equal(await client.bf.add("node:bloom", "alice"), true);
assert.equal(await client.bf.add("node:bloom", "alice"), false);
assert.deepEqual(await client.bf.mAdd("node:bloom", ["bob", "carol", "bob"]), [true, true, false]);
assert.equal(await client.bf.exists("node:bloom", "bob"), true);
assert.deepEqual(await client.bf.mExists("node:bloom", ["carol", "dave"]), [true, false]);
assert.equal(await client.bf.card("node:bloom"), 3);
const info = await client.bf.info("node:bloom");
assert.equal(info["Capacity"], 1000);
assert.equal(info["Number of items inserted"], 3);

await client.cf.reserve("node:cuckoo", 1000);
assert.equal(await client.cf.add("node:cuckoo", "alice"), true);
assert.equal(await client.cf.addNX("node:cuckoo", "alice"), false);
assert.equal(await client.cf.count("node:cuckoo", "alice"), 1);
assert.equal(await client.cf.del("node:cuckoo", "alice"), true);
assert.equal(await client.cf.exists("node:cuckoo", "alice"), false);

const [added, found] = await client.multi().bf.add("node:bloom", "erin").bf.exists("node:bloom", "erin").exec();
assert.deepEqual([added, found], [true, true]);
const many = await Promise.all(
  Array.from({ length: 5000 }, (_, i) => client.bf.add("node:many", `key:${i}`)),
);
assert.ok(many.filter(Boolean).length >= 4900);
assert.equal(await client.type("node:bloom"), "MBbloom--");
assert.equal(await client.del(["node:bloom", "node:cuckoo", "node:many"]), 3);
await assert.rejects(client.set("string", "x"), /unknown command/);
await client.close();
console.log("node-redis ok");
