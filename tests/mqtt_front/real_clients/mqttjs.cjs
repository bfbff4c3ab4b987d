// Does with mqtt.js what standard input says, one JSON object a line, and tells of it on standard output in the same way.
"use strict";

const readline = require("node:readline");
const mqtt = require("mqtt");

const clients = new Map();

function say(value) {
  process.stdout.write(JSON.stringify(value) + "\n");
}

function hear(name) {
  return (topic, payload, packet) => {
    const { qos, retain } = packet;
    say({ client: name, message: { topic, payload: payload.toString("base64"), qos, retain } });
  };
}

async function open({ client, url, options }) {
  const opened = mqtt.connect(url, { ...options, reconnectPeriod: 0 });
  clients.set(client, opened);
  opened.on("message", hear(client));
  await new Promise((resolve, reject) => {
    opened.once("connect", resolve);
    opened.once("error", reject);
    opened.once("close", () => reject(new Error("closed")));
  });
  opened.on("error", () => {});
}

const does = {
  open,
  subscribe: ({ client, filter, qos }) => clients.get(client).subscribeAsync(filter, { qos }),
  publish: ({ client, topic, payload, qos, retain }) =>
    clients.get(client).publishAsync(topic, Buffer.from(payload, "base64"), { qos, retain }),
  vanish: async ({ client }) => clients.get(client).stream.destroy(),
  close: ({ client }) => clients.get(client).endAsync(),
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const order = JSON.parse(line);
  does[order.do](order).then(
    () => say({ done: order.id }),
    (error) => say({ done: order.id, error: String(error) }),
  );
});
process.stdin.on("end", () => process.exit(0));
