// The live page. Whatever clients or other peers have chosen is only ever set as text, never as HTML.
import { Refused, change, events, list, setToken } from "./api.js";
import { MqttClient } from "./mqtt.js";

const MAX_EVENTS = 200, MAX_RATES = 120, MAX_ROWS = 500, MAX_MESSAGES = 200, AGAIN_MS = 1000, REFRESH_MS = 3000;
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const short = (id) => id.slice(0, 8);
const numbers = new Intl.NumberFormat("en");

const state = { me: "", peers: new Map(), chosen: "", rates: [], addresses: new Map(), topic: null, client: null, connecting: false, done: {} };

// Small parts

function element(name, text, ...names) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  made.classList.add(...names);
  return made;
}

function span(seconds) {
  const rest = Math.round(seconds);
  const parts = [[Math.floor(rest / 86400), "d"], [Math.floor(rest / 3600) % 24, "h"], [Math.floor(rest / 60) % 60, "min"], [rest % 60, "s"]];
  const first = parts.findIndex(([count]) => count);
  return parts.slice(first < 0 ? 3 : first).slice(0, 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

const count = (many, what) => `${numbers.format(many)} ${what}${many === 1 ? "" : "s"}`;

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let power = 0;
  while (bytes >= 1000 && power < 3) { bytes /= 1000; power += 1; }
  return `${bytes.toFixed(power ? 1 : 0)} ${units[power]}`;
}

// Columns are [head, cell of a row, "number"?]; a cell is a text or an element.
function fill(table, columns, rows, key) {
  const head = element("tr");
  for (const [name, , kind] of columns) head.append(element("th", name, ...(kind ? [kind] : [])));
  table.tHead.replaceChildren(head);
  const lines = rows.slice(0, MAX_ROWS).map((row) => {
    const line = element("tr");
    if (key) line.dataset.key = key(row);
    for (const [, cell, kind] of columns) {
      const value = cell(row);
      const box = element("td", undefined, ...(kind ? [kind] : []));
      if (value instanceof Node) box.append(value);
      else { box.textContent = value; box.title = value; }
      line.append(box);
    }
    return line;
  });
  table.tBodies[0].replaceChildren(...lines);
}

function lacks(reply, rows) {
  const parts = [`${numbers.format(reply.total)} in all`];
  if (reply.total > rows) parts.push(`${numbers.format(rows)} shown`);
  for (const missing of reply.missing) parts.push(`missing: ${missing.address}, ${missing.why}`);
  return parts.join(" · ");
}

const address = (peer) => state.addresses.get(peer) ?? short(peer);

// The ring

function happened(text) {
  const line = element("li");
  line.append(element("time", new Date().toLocaleTimeString()), text);
  const all = byId("events");
  all.prepend(line);
  while (all.children.length > MAX_EVENTS) all.lastChild.remove();
}

function peersOf(reply) {
  const found = new Map();
  for (const row of reply.rows) found.set(row.peer, { id: row.peer, address: row.address, state: row.state, row });
  for (const missing of reply.missing) {
    found.set(missing.peer, { id: missing.peer, address: missing.address, state: "silent", why: missing.why });
  }
  for (const row of reply.rows) {
    for (const gone of row.gone) {
      const known = found.get(gone.id);
      if (!known || (gone.left && known.state === "dead")) {
        found.set(gone.id, { id: gone.id, address: gone.address, state: gone.left ? "left" : "dead" });
      }
    }
  }
  return new Map([...found].sort(([first], [second]) => (first < second ? -1 : 1)));
}

function compare(before, after) {
  if (!before.size) return;
  for (const [id, peer] of after) {
    const known = before.get(id);
    if (!known) happened(`${peer.address} is ${peer.state}`);
    else if (known.state !== peer.state) happened(`${peer.address} is ${peer.state}, was ${known.state}`);
    else for (const warning of peer.row?.warnings ?? []) {
      if (!known.row?.warnings.includes(warning)) happened(`${peer.address}: ${warning}`);
    }
  }
  for (const [id, peer] of before) if (!after.has(id)) happened(`${peer.address} is forgotten`);
}

function choose(id) {
  state.chosen = state.chosen === id ? "" : id;
  drawRing();
}

const circles = new Map();

function drawRing() {
  const drawing = byId("circle");
  if (!drawing.firstChild) {
    const orbit = document.createElementNS(SVG, "circle");
    orbit.setAttribute("r", "100");
    orbit.classList.add("orbit");
    const label = document.createElementNS(SVG, "text");
    label.id = "circle-text";
    const rays = document.createElementNS(SVG, "g");
    rays.id = "rays";
    drawing.append(orbit, rays, label);
  }
  for (const [id, circle] of circles) if (!state.peers.has(id)) { circle.remove(); circles.delete(id); }
  for (const [id, peer] of state.peers) {
    let circle = circles.get(id);
    if (!circle) {
      circle = document.createElementNS(SVG, "circle");
      const turn = (parseInt(id.slice(0, 8), 16) / 2 ** 32) * 2 * Math.PI;
      circle.setAttribute("cx", (100 * Math.sin(turn)).toFixed(2));
      circle.setAttribute("cy", (-100 * Math.cos(turn)).toFixed(2));
      circle.setAttribute("r", state.peers.size > 60 ? "3" : "6");
      circle.setAttribute("tabindex", "0");
      circle.setAttribute("role", "button");
      circle.dataset.peer = id;
      circle.append(document.createElementNS(SVG, "title"));
      circle.addEventListener("click", () => choose(id));
      circle.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(id); }
      });
      drawing.append(circle);
      circles.set(id, circle);
    }
    circle.setAttribute("class", `peer ${peer.state}`);
    circle.setAttribute("aria-pressed", String(state.chosen === id));
    circle.setAttribute("aria-label", `${peer.address}, ${peer.state}`);
    circle.firstChild.textContent = `${peer.address}\n${peer.state}${peer.row ? `, ${peer.row.clients} clients` : ""}`;
  }
  drawTopic();
  const chosen = state.peers.get(state.chosen);
  byId("circle-text").textContent = chosen ? `${chosen.address}: ${chosen.state}` : count(state.peers.size, "peer");
  for (const line of byId("peers").tBodies[0].rows) line.classList.toggle("chosen", line.dataset.key === state.chosen);
}

const PEERS = [
  ["peer", (peer) => short(peer.id)],
  ["address", (peer) => (peer.id === state.me ? `${peer.address} (this)` : peer.address)],
  ["state", (peer) => element("span", peer.state, "state", peer.state)],
  ["version", (peer) => peer.row?.version ?? ""],
  ["up", (peer) => (peer.row ? span(peer.row.uptime_s) : "")],
  ["clients", (peer) => (peer.row ? numbers.format(peer.row.clients) : ""), "number"],
  ["in/s", (peer) => peer.row?.messages_in_s.toFixed(1) ?? "", "number"],
  ["out/s", (peer) => peer.row?.messages_out_s.toFixed(1) ?? "", "number"],
  ["memory", (peer) => (peer.row ? size(peer.row.memory_bytes) : ""), "number"],
  ["late", (peer) => (peer.row ? `${peer.row.late_ms.toFixed(0)} ms` : ""), "number"],
  ["coordinates", (peer) => (peer.row ? numbers.format(peer.row.coordinates) : ""), "number"],
  ["shadows", (peer) => (peer.row ? numbers.format(peer.row.shadows) : ""), "number"],
  ["warnings", (peer) => peer.why ?? peer.row?.warnings.join("; ") ?? ""],
];

function drawRates() {
  const most = Math.max(...state.rates);
  const step = 240 / (MAX_RATES - 1);
  const start = MAX_RATES - state.rates.length;
  const points = state.rates.map((rate, index) => `${((start + index) * step).toFixed(1)},${(58 - (56 * rate) / Math.max(1, most)).toFixed(1)}`);
  byId("rates-line").setAttribute("points", points.join(" "));
  byId("rates-text").textContent = `${state.rates.at(-1).toFixed(1)} now, ${most.toFixed(1)} at most`;
}

function takeRing(reply) {
  if (reply.me) state.me = reply.me;
  if (!reply.rows || reply.error) return;
  const peers = peersOf(reply);
  compare(state.peers, peers);
  state.peers = peers;
  state.addresses = new Map([...peers].map(([id, peer]) => [id, peer.address]));
  const rows = reply.rows;
  state.rates.push(rows.reduce((sum, row) => sum + row.messages_in_s, 0));
  state.rates.splice(0, state.rates.length - MAX_RATES);
  const bad = [...peers.values()].filter((peer) => !["active", "left"].includes(peer.state) || peer.row?.warnings.length);
  const clients = rows.reduce((sum, row) => sum + row.clients, 0);
  byId("summary").textContent = `${count(rows.length, "peer")}, ${count(clients, "client")}, ${bad.length ? `${bad.length} not well` : "all is well"}`;
  if (!byId("ring").hidden && !document.hidden) drawView();
  if (!byId("try").hidden && !state.client) showTry();
}

function drawView() {
  fill(byId("peers"), PEERS, [...state.peers.values()], (peer) => peer.id);
  drawRing();
  if (state.rates.length) drawRates();
}

// Lists

const fieldsOf = (form) => Object.fromEntries(new FormData(form));

async function shown(name, work) {
  const note = byId(`${name}-note`);
  try {
    note.textContent = await work();
    note.classList.remove("fault");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) login(error.message);
    note.textContent = error.message;
    note.classList.add("fault");
  }
}

function button(text, label, work) {
  const made = element("button", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", work);
  return made;
}

async function kick(row) {
  if (!confirm(`End the connection of ${row.client}?`)) return;
  await shown("clients", async () => {
    const reply = await change("kick", { client: row.client, peer: row.peer });
    return state.done.clients = reply.rows.map((done) => `${done.name}: ${done.done}`).join(" · ") || `${row.client} is not connected any more`;
  });
  setTimeout(showClients, AGAIN_MS);
}

async function clear(row) {
  if (!confirm(`Clear the retained message of ${row.topic}?`)) return;
  await shown("retained", async () => {
    const reply = await change("clear", { filter: row.topic });
    return state.done.retained = reply.rows.map((done) => `${done.name}: ${done.done}`).join(" · ");
  });
  setTimeout(showRetained, AGAIN_MS);
}

const CLIENTS = [
  ["client", (row) => row.client],
  ["user", (row) => row.user ?? "–"],
  ["peer", (row) => address(row.peer)],
  ["from", (row) => row.address],
  ["MQTT", (row) => row.version],
  ["for", (row) => span(row.connected_s)],
  ["filters", (row) => numbers.format(row.subscriptions), "number"],
  ["queued", (row) => numbers.format(row.queued), "number"],
  ["dropped", (row) => numbers.format(row.dropped), "number"],
  ["", (row) => button("kick", `kick ${row.client}`, () => kick(row))],
];
const RETAINED = [
  ["topic", (row) => row.topic],
  ["payload", (row) => row.payload],
  ["size", (row) => size(row.size_bytes), "number"],
  ["QoS", (row) => String(row.qos), "number"],
  ["stored", (row) => new Date(row.stored_at * 1000).toLocaleString()],
  ["expires in", (row) => (row.expires_in_s === null ? "–" : span(row.expires_in_s))],
  ["coordinator", (row) => address(row.peer)],
  ["", (row) => button("clear", `clear ${row.topic}`, () => clear(row))],
];
const TOPICS = [
  ["topic", (row) => button(row.topic, `show ${row.topic} on the ring`, () => trace(row.topic))],
  ["published at", (row) => address(row.peer)],
  ["dispatch", (row) => row.dispatch],
  ["sent to peers", (row) => (row.peers === null ? "–" : numbers.format(row.peers)), "number"],
  ["waiting", (row) => numbers.format(row.waiting), "number"],
];

// Where a topic lives: its coordinators, their shadows, and the rays from publishers to subscribers.
async function trace(topic) {
  await shown("topics", async () => {
    const [found, published] = await Promise.all([list("topic", { topic }), list("topics", { filter: topic, limit: MAX_ROWS })]);
    const held = found.partitions.map((partition) => partition.held).filter(Boolean);
    state.topic = {
      name: topic,
      coordinators: new Set(found.partitions.filter((partition) => partition.held).map((partition) => partition.coordinator.id)),
      shadows: new Set(held.flatMap((copy) => copy.shadows.map((shadow) => shadow.id))),
      subscribers: new Set(held.flatMap((copy) => copy.subscribers.map((subscriber) => subscriber.id))),
      publishers: new Set(published.rows.filter((row) => row.topic === topic).map((row) => row.peer)),
    };
    location.hash = "#ring";
    return "";
  });
}

function drawTopic() {
  const rays = byId("rays");
  rays.replaceChildren();
  byId("topic").hidden = !state.topic;
  for (const [id, circle] of circles) {
    for (const name of ["coordinator", "shadow", "subscriber"]) {
      circle.classList.toggle(name, Boolean(state.topic?.[`${name}s`].has(id)));
    }
  }
  if (!state.topic) return;
  const { name, coordinators, shadows, subscribers, publishers } = state.topic;
  const names = (peers) => [...peers].map(address).join(", ") || "nobody";
  byId("topic-name").textContent = name;
  byId("topic-text").textContent = `coordinated by ${names(coordinators)}; copies at ${names(shadows)}; published at ${names(publishers)}; subscribed at ${names(subscribers)}`;
  for (const from of publishers) {
    for (const to of subscribers) {
      const [start, end] = [circles.get(from), circles.get(to)];
      if (!start || !end || from === to) continue;
      const ray = document.createElementNS(SVG, "line");
      for (const [key, circle, axis] of [["x1", start, "cx"], ["y1", start, "cy"], ["x2", end, "cx"], ["y2", end, "cy"]]) {
        ray.setAttribute(key, circle.getAttribute(axis));
      }
      rays.append(ray);
    }
  }
}

function showList(name, columns, order) {
  return shown(name, async () => {
    const reply = await list(name, { ...fieldsOf(byId(`${name}-form`)), limit: MAX_ROWS });
    const rows = reply.rows.sort((first, second) => (first[order] < second[order] ? -1 : 1));
    fill(byId(`${name}-table`), columns, rows);
    // What was changed is said until the next search.
    return [state.done[name], lacks(reply, rows.length)].filter(Boolean).join(" · ");
  });
}

const showClients = () => showList("clients", CLIENTS, "client");
const showRetained = () => showList("retained", RETAINED, "topic");
const showTopics = () => showList("topics", TOPICS, "topic");

// Publishing and subscribing

function say(text, faulty = false) {
  const note = byId("try-note");
  note.textContent = text;
  note.classList.toggle("fault", faulty);
}

function showTry() {
  if (state.connecting) return;
  const listener = state.peers.get(state.me)?.row?.listeners.mqtt_ws;
  const open = Boolean(state.client);
  byId("try-login").hidden = open || !listener;
  byId("subscribe-form").hidden = byId("publish-form").hidden = !open;
  if (!state.peers.has(state.me)) say("looking for the listener of this peer …");
  else if (!listener) say("This peer has no listener for WebSocket: start it with --mqtt-ws HOST:PORT.");
  else if (!open && !byId("try-note").classList.contains("fault")) say("");
}

function connect(event) {
  event.preventDefault();
  const listener = state.peers.get(state.me).row.listeners.mqtt_ws;
  const { user, password } = fieldsOf(byId("try-login"));
  const port = listener.slice(listener.lastIndexOf(":") + 1);
  state.connecting = true;
  say("connecting …");
  const client = new MqttClient(`ws://${location.hostname}:${port}/`, user, password, {
    opened() { state.connecting = false; state.client = client; showTry(); say("connected"); },
    subscribed(filter, granted) { say(granted ? `subscribed to ${filter}` : `${filter} is refused`, !granted); },
    message(topic, payload) {
      const line = element("li");
      line.append(element("time", new Date().toLocaleTimeString()), element("b", topic), " ", payload);
      byId("messages").prepend(line);
      while (byId("messages").children.length > MAX_MESSAGES) byId("messages").lastChild.remove();
    },
    closed(why) { state.connecting = false; state.client = null; showTry(); say(why, true); },
  });
}

// Views

const VIEWS = { ring: drawView, clients: showClients, retained: showRetained, topics: showTopics, try: showTry };
const view = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "ring");

function show() {
  const open = byId("login").hidden;
  for (const name of Object.keys(VIEWS)) byId(name).hidden = !open || name !== view();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (open) VIEWS[view()]();
}

function login(why) {
  byId("login").hidden = false;
  byId("login-fault").textContent = why;
  for (const name of Object.keys(VIEWS)) byId(name).hidden = true;
  byId("token").focus();
}

async function follow() {
  for (;;) {
    try {
      await events(takeRing);
      byId("summary").textContent = "the peer has closed the connection; trying again …";
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        login(error.message);
        return;
      }
      byId("summary").textContent = `no connection: ${error.message}; trying again …`;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

byId("topic-close").addEventListener("click", () => { state.topic = null; drawRing(); });
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("login").hidden = true;
  show();
  follow();
});
for (const [name, work] of [["clients", showClients], ["retained", showRetained], ["topics", showTopics]]) {
  byId(`${name}-form`).addEventListener("submit", (event) => { event.preventDefault(); state.done[name] = ""; work(); });
}
byId("try-login").addEventListener("submit", connect);
byId("subscribe-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.client?.subscribe(fieldsOf(event.target).filter);
});
byId("publish-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { topic, payload, retain } = fieldsOf(event.target);
  const sent = state.client?.publish(topic, payload, Boolean(retain));
  say(sent ? `published to ${topic}` : "the connection is busy: try again", !sent);
});
window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(); });
setInterval(() => {
  const busy = document.querySelector("main :focus");
  if (!document.hidden && !busy && ["clients", "topics", "retained"].includes(view()) && byId("login").hidden) VIEWS[view()]();
}, REFRESH_MS);
show();
follow();
