// The WebSocket of live transcription: binary 16-bit PCM goes out, JSON events come in.

import { Problem } from "./server.js";

const FINISHED = new Set(["done"]);
const HEARD = new Set(["partial", "committed", "final", "notice"]);

export class LiveConnection {
  #socket;
  #isDone = false;

  /**
   * onReady(): sound may be sent; onHeard(event): partial, committed, final or notice;
   * onEnd(problem or null): all has been said, or it broke.
   */
  constructor({ key, model, language, context, sampleRate }, { onReady, onHeard, onEnd }) {
    const address = new URL("/v1/audio/stream", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const query = { model, language, prompt: context, sample_rate: sampleRate, encoding: "s16le" };
    for (const [name, value] of Object.entries(query)) {
      if (value) address.searchParams.set(name, value);
    }
    // Browsers cannot set headers here; the key travels as a name of a subprotocol.
    const protocols = key ? ["stapes", `stapes-key.${key}`] : ["stapes"];
    const end = (problem) => {
      if (this.#isDone) return;
      this.#isDone = true;
      this.#socket.close();
      onEnd(problem);
    };
    this.#socket = new WebSocket(address, protocols);
    this.#socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "ready") onReady();
      else if (HEARD.has(event.type)) onHeard(event);
      else if (FINISHED.has(event.type)) end(null);
      else if (event.type === "error") end(new Problem(event.error.message, { code: event.error.code }));
    };
    this.#socket.onclose = ({ reason }) =>
      end(new Problem(reason || "The connection to the server was lost."));
  }

  /** Bytes that have not left the browser: how far the network is behind. */
  get waitingBytes() {
    return this.#socket.bufferedAmount;
  }

  /** Int16Array of one channel; what comes after the end is dropped. */
  send(samples) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(samples);
  }

  /** The sound has ended; what was said last still comes. */
  finish() {
    if (this.#socket.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify({ type: "finish" }));
    }
  }

  /** End it at once; nothing more is told. */
  close() {
    this.#isDone = true;
    this.#socket.close();
  }
}
