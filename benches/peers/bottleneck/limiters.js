// Bottleneck's cluster mode: limiters of one id on one Redis, and tasks that ask for a permit, do nothing and give it back, over and
// over. Says how many got one, once its time is over.
//
// usage: node limiters.js HOST PORT LIMITERS TASKS SECONDS, then a line to its input once it has said "ready"
"use strict";

const Bottleneck = require("bottleneck");
const Redis = require("ioredis");

const host = process.argv[2];
const [port, limiters, tasks, seconds] = process.argv.slice(3).map(Number);

const settings = {
  id: "example.com",
  datastore: "ioredis",
  Redis,
  clientOptions: { host, port },
  // Nothing is in the way, as with the others.
  maxConcurrent: 10_000,
  minTime: 0,
};

async function main() {
  const all = Array.from({ length: limiters }, () => new Bottleneck(settings));
  await Promise.all(all.map((limiter) => limiter.ready()));
  await all[0].schedule(async () => {});
  console.log("ready");
  await new Promise((go) => process.stdin.once("data", go));
  const until = Date.now() + seconds * 1_000;
  let permits = 0;
  const task = async (limiter) => {
    while (Date.now() < until) {
      await limiter.schedule(async () => {});
      permits += 1;
    }
  };
  await Promise.all(all.flatMap((limiter) => Array.from({ length: tasks }, () => task(limiter))));
  console.log(permits);
  process.exit(0);
}

main();
