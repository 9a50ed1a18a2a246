// ioredis, the newest, with its defaults: what its users do. node ioredis.mjs PORT
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const loaded = createRequire(process.cwd() + "/")("ioredis");
const Redis = loaded.Redis ?? loaded.default ?? loaded;
const client = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: 1 });
assert.equal(await client.ping(), "PONG");

// It has no interface for filters: its users call them by name. Booleans or numbers, as its version has it.
const call = async (...words) => {
  const reply = await client.call(...words);
  return Array.isArray(reply) ? reply.map(Number) : reply;
};
assert.equal(await call("BF.RESERVE", "io:bloom", "0.001", "1000"), "OK");
assert.equal(Number(await call("BF.ADD", "io:bloom", "alice")), 1);
assert.equal(Number(await call("BF.ADD", "io:bloom", "alice")), 0);
assert.deepEqual(await call("BF.MADD", "io:bloom", "bob", "carol", "bob"), [1, 1, 0]);
assert.deepEqual(await call("BF.MEXISTS", "io:bloom", "carol", "dave"), [1, 0]);
assert.equal(Number(await call("CF.ADD", "io:cuckoo", "alice")), 1);
assert.equal(Number(await call("CF.DEL", "io:cuckoo", "alice")), 1);

const pipeline = client.pipeline();
for (let i = 0; i < 5000; i++) pipeline.call("BF.ADD", "io:many", `key:${i}`);
const replies = await pipeline.exec();
assert.ok(replies.every(([error]) => error === null));
assert.ok(replies.filter(([, reply]) => Number(reply) === 1).length >= 4900);
const [[, added], [, found]] = await client
  .multi()
  .call("BF.ADD", "io:bloom", "erin")
  .call("BF.EXISTS", "io:bloom", "erin")
  .exec();
assert.deepEqual([Number(added), Number(found)], [1, 1]);
assert.equal(await client.type("io:cuckoo"), "MBbloomCF");
assert.equal(await client.del("io:bloom", "io:cuckoo", "io:many"), 3);
await assert.rejects(client.set("string", "x"), /unknown command/);
client.disconnect();
console.log("ioredis ok");
