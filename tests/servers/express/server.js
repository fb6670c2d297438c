// Several hosts behind express-rate-limit, one limit each.
// usage: node server.js '{"<host name>": {"address": "127.0.0.2", "port": 8000, "log": "/path/to/log"}, …}'
"use strict";
const fs = require("node:fs");
const express = require("express");
const { rateLimit } = require("express-rate-limit");

const hosts = {
  "express-20in10-draft8": limited({ limit: 20, windowMs: 10_000, standardHeaders: "draft-8", legacyHeaders: false }),
  "express-20in10-draft7": limited({ limit: 20, windowMs: 10_000, standardHeaders: "draft-7", legacyHeaders: false }),
  "express-20in10-legacy": limited({ limit: 20, windowMs: 10_000, standardHeaders: false, legacyHeaders: true }),
  "express-100in10-draft6": limited({ limit: 100, windowMs: 10_000, standardHeaders: "draft-6", legacyHeaders: false }),
  // Neither headers nor Retry-After: a client has to find out.
  "express-30in10-bare": limited({ limit: 30, windowMs: 10_000, standardHeaders: false, legacyHeaders: false }),
  "express-noisy": () => noisy({ every: 33 }),
  "express-blocks": () => blocks({ overPerSecond: 20, forMs: 30_000 }),
  // Behind nginx-4conn: slow, unlimited, and without a truth log because nginx keeps it.
  upstream: () => (req, res, next) => setTimeout(next, 300),
};

function limited(options) {
  return () => rateLimit({ ...options, validate: true });
}

/** A plain 500 for every n-th request (3 % for 33), counted and not drawn, so that a run can be repeated. */
function noisy({ every }) {
  let seen = 0;
  return (req, res, next) => (++seen % every === 0 ? res.status(500).send("oops\n") : next());
}

/** A challenge page to a client that sent more than so many requests in a second, as bot managers do. */
function blocks({ overPerSecond, forMs }) {
  const clients = new Map();
  return (req, res, next) => {
    const client = clients.get(req.ip) ?? { recent: [], blockedUntil: 0 };
    clients.set(req.ip, client);
    const now = performance.now();
    client.recent = client.recent.filter((t) => t > now - 1000).concat(now);
    if (client.recent.length > overPerSecond) client.blockedUntil = now + forMs;
    if (now >= client.blockedUntil) return next();
    res.status(403).set("cf-mitigated", "challenge");
    res.send("<!doctype html><title>Just a moment...</title><p>Checking your browser before you continue.\n");
  };
}

/** One truth line per request, written before its answer leaves: who has the answer finds the line. */
function truthLog(host, file) {
  const log = fs.openSync(file, "a");
  return (req, res, next) => {
    const start = performance.now();
    const end = res.end;
    res.end = function (...args) {
      const now = performance.now();
      const line = {
        end: (performance.timeOrigin + now) / 1000,
        took: (now - start) / 1000,
        host,
        path: req.originalUrl,
        status: res.statusCode,
        client: req.ip,
        retry_after: String(res.getHeader("Retry-After") ?? ""),
      };
      fs.writeSync(log, JSON.stringify(line) + "\n");
      return end.apply(this, args);
    };
    next();
  };
}

function page(req, res) {
  const text = `<p>Page ${req.params.n} of a host with a limit, about two kilobytes long.</p>\n`;
  res.type("html").send("<!doctype html>\n" + text.repeat(33));
}

for (const [host, { address, port, log }] of Object.entries(JSON.parse(process.argv[2]))) {
  const app = express();
  app.disable("x-powered-by");
  if (log) app.use(truthLog(host, log));
  app.use(hosts[host]()); // before any route: robots.txt and unknown paths count as pages do
  app.get("/page/:n", page);
  app.use((req, res) => res.status(404).send("not found\n"));
  app.listen(port, address, (error) => {
    if (error) throw error;
  });
}
