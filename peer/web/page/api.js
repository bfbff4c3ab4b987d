// Calls of the interface under /api/v1/, with the token of this tab, and the stream of events.
const TOKEN = "ringmq-token";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) { sessionStorage.setItem(TOKEN, token); }

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function checked(response) {
  if (response.ok) return response;
  const text = (await response.text()).trim();
  let why = text;
  try { why = JSON.parse(text).error || text; } catch { /* a line of text */ }
  throw new Refused(response.status, why);
}

export async function list(subject, fields = {}) {
  const given = Object.entries(fields).filter(([, value]) => value !== "");
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  return (await checked(await fetch(`api/v1/${subject}${query}`, { headers: headers() }))).json();
}

export async function change(subject, body) {
  const given = { ...headers(), "Content-Type": "application/json" };
  const call = { method: "POST", headers: given, body: JSON.stringify(body) };
  return (await checked(await fetch(`api/v1/${subject}`, call))).json();
}

// EventSource cannot send a token, so the stream is read by hand. Ends when the connection does.
export async function events(take) {
  const response = await checked(await fetch("api/v1/events", { headers: headers() }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end = text.indexOf("\n\n");
    while (end >= 0) {
      const data = text.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
      if (data) take(JSON.parse(data.slice(6)));
      text = text.slice(end + 2);
      end = text.indexOf("\n\n");
    }
  }
}
