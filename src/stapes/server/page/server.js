// The server's HTTP interface: docs/server.md.

const KEY_NAME = "stapes-key";

/** Something that went wrong, in one sentence for the user. */
export class Problem extends Error {
  constructor(message, { status = 0, code = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** From the body of an error, or without one from the status. */
  static of(status, text) {
    let error = null;
    try {
      error = JSON.parse(text).error;
    } catch {
      // Not from stapes: a proxy in between.
    }
    return new Problem(error?.message ?? `The server answered with status ${status}.`, {
      status,
      code: error?.code ?? null,
    });
  }
}

const GONE = "The server cannot be reached. Is it still running?";
const LOST = "The connection to the server was lost.";
const BROKEN = "The server broke off the upload. It may be busy or stopping: try again in a moment.";
const CUT = "The server ended its answer early.";

export class Server {
  /** The API key, kept for this tab only; "" when there is none. */
  get key() {
    return sessionStorage.getItem(KEY_NAME) ?? "";
  }

  set key(value) {
    if (value) sessionStorage.setItem(KEY_NAME, value);
    else sessionStorage.removeItem(KEY_NAME);
  }

  settings() {
    return this.#json("/static/settings.json");
  }

  async models() {
    return (await this.#json("/v1/models")).data;
  }

  /** What /health says, also when it says that the server is not well. */
  async health() {
    const response = await this.#ask("/health");
    return response.json();
  }

  /** A transcript as "srt" or "vtt". */
  async subtitles({ duration, segments, words = [] }, format) {
    const told = {
      response_format: format,
      duration,
      segments: segments.map(({ start, end, text }) => ({ start, end, text })),
      words: words.map(({ word, start, end }) => ({ word, start, end })),
    };
    const response = await this.#ask("/v1/audio/subtitles", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(told),
    });
    if (!response.ok) throw Problem.of(response.status, await response.text());
    return response.text();
  }

  /**
   * Upload a recording and listen to its transcript as it comes.
   * onUpload(fraction), onEvent(event of the stream); resolves to the last event.
   * An XMLHttpRequest, because fetch does not tell how far an upload is.
   */
  transcribe(file, fields, { onUpload, onEvent, signal }) {
    const form = new FormData();
    for (const [name, value] of fields) form.append(name, value);
    form.append("file", file, file.name || "recording"); // last: the fields are checked first
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      const events = new EventReader();
      let last = null;
      const read = () => {
        if (request.status !== 200) return;
        for (const event of events.upTo(request.responseText)) {
          if (event.error) throw new Problem(event.error.message, { code: event.error.code });
          if (event.type === "transcript.text.done") last = event;
          else onEvent(event);
        }
      };
      const guarded = (work) => () => {
        try {
          work();
        } catch (error) {
          reject(error);
          request.abort();
        }
      };
      request.upload.onprogress = ({ loaded, total }) => onUpload(total ? loaded / total : 1);
      request.upload.onload = () => onUpload(1);
      request.onprogress = guarded(read);
      request.onload = guarded(() => {
        read();
        if (request.status !== 200) throw Problem.of(request.status, request.responseText);
        if (!last) throw new Problem(CUT);
        resolve(last);
      });
      request.onerror = async () => reject(new Problem(request.status ? LOST : await this.#silence()));
      request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
      signal.addEventListener("abort", () => request.abort(), { once: true });
      request.open("POST", "/v1/audio/transcriptions");
      if (this.key) request.setRequestHeader("Authorization", `Bearer ${this.key}`);
      request.send(form);
    });
  }

  /** Why a request got no answer: a server that refuses an upload early may be heard or not. */
  async #silence() {
    try {
      await this.health();
      return BROKEN;
    } catch {
      return GONE;
    }
  }

  async #json(path) {
    const response = await this.#ask(path);
    if (!response.ok) throw Problem.of(response.status, await response.text());
    return response.json();
  }

  async #ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    try {
      return await fetch(path, { ...options, headers, cache: "no-store" });
    } catch {
      throw new Problem(GONE);
    }
  }
}

/** Server-sent events out of a text that grows. */
export class EventReader {
  #read = 0;

  /** The events that have become complete since the last call. */
  *upTo(text) {
    for (;;) {
      const end = text.indexOf("\n\n", this.#read);
      if (end < 0) return;
      const lines = text.slice(this.#read, end).split("\n");
      this.#read = end + 2;
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      if (data.length && data[0] !== "[DONE]") yield JSON.parse(data.join("\n"));
    }
  }
}
