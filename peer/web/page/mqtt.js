// A client of MQTT 3.1.1 over WebSocket, for trying: QoS 0 subscriptions and publications, and nothing else.
const CONNACK = 2, PUBLISH = 3, SUBACK = 9;
const KEEP_ALIVE_S = 30;
const MAX_WAITING_BYTES = 1 << 20;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

function text(value) {
  const bytes = encoder.encode(value);
  return [bytes.length >> 8, bytes.length & 255, ...bytes];
}

function packet(first, body) {
  const length = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest);
  return new Uint8Array([first, ...length, ...body]);
}

export class MqttClient {
  // `on` has the calls opened(), message(topic, payload), subscribed(filter, granted) and closed(why).
  constructor(url, user, password, on) {
    this.on = on;
    this.buffer = new Uint8Array(0);
    this.asked = new Map();
    this.next = 1;
    this.why = "the connection is closed";
    this.socket = new WebSocket(url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.connect(user, password);
    this.socket.onmessage = (event) => this.take(new Uint8Array(event.data));
    this.socket.onclose = () => this.ended();
  }

  connect(user, password) {
    const flags = 2 | (user ? 128 | 64 : 0);
    const name = `page-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}`;
    const login = user ? [...text(user), ...text(password)] : [];
    this.socket.send(packet(16, [...text("MQTT"), 4, flags, 0, KEEP_ALIVE_S, ...text(name), ...login]));
    this.pings = setInterval(() => this.socket.send(new Uint8Array([192, 0])), KEEP_ALIVE_S * 500);
  }

  subscribe(filter) {
    const id = this.next++ & 65535 || this.next++;
    this.asked.set(id, filter);
    this.socket.send(packet(130, [id >> 8, id & 255, ...text(filter), 0]));
  }

  publish(topic, payload, retain) {
    if (this.socket.bufferedAmount > MAX_WAITING_BYTES) return false;
    this.socket.send(packet(48 | (retain ? 1 : 0), [...text(topic), ...encoder.encode(payload)]));
    return true;
  }

  close() { this.socket.close(); }

  ended() {
    clearInterval(this.pings);
    this.on.closed(this.why);
  }

  take(data) {
    const joined = new Uint8Array(this.buffer.length + data.length);
    joined.set(this.buffer);
    joined.set(data, this.buffer.length);
    let at = 0;
    for (;;) {
      let length = 0, shift = 0, cursor = at + 1;
      while (cursor < joined.length && joined[cursor] & 128) {
        length |= (joined[cursor++] & 127) << shift;
        shift += 7;
      }
      if (cursor >= joined.length) break;
      length |= joined[cursor++] << shift;
      if (cursor + length > joined.length) break;
      this.packet(joined[at], joined.subarray(cursor, cursor + length));
      at = cursor + length;
    }
    this.buffer = joined.slice(at);
  }

  packet(first, body) {
    const kind = first >> 4;
    if (kind === CONNACK) {
      if (body[1]) this.why = body[1] === 4 || body[1] === 5 ? "refused: user and password?" : `refused (${body[1]})`;
      else this.on.opened();
    } else if (kind === SUBACK) {
      const id = (body[0] << 8) | body[1];
      this.on.subscribed(this.asked.get(id) ?? "", body[2] < 128);
      this.asked.delete(id);
    } else if (kind === PUBLISH) {
      const length = (body[0] << 8) | body[1];
      const topic = decoder.decode(body.subarray(2, 2 + length));
      this.on.message(topic, decoder.decode(body.subarray(2 + length, 2 + length + 2000)));
    }
  }
}
