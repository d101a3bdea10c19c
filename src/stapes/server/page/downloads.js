// The transcript as files, and in the clipboard.

import { byId, show } from "./dom.js";

const KINDS = {
  txt: "text/plain",
  srt: "application/x-subrip",
  vtt: "text/vtt",
  json: "application/json",
};

export class Downloads {
  #addresses = [];
  #text = "";
  #turn = 0; // counts transcripts: subtitles of one before come too late

  constructor() {
    byId("copy").addEventListener("click", () => this.#copy());
  }

  clear() {
    this.#turn += 1;
    for (const address of this.#addresses) URL.revokeObjectURL(address);
    this.#addresses = [];
    for (const kind of Object.keys(KINDS)) byId(`save-${kind}`).removeAttribute("href");
    show(false, byId("downloads"));
    byId("said").textContent = "";
  }

  /** Offer a transcript (as verbose_json) under a recording's name; subtitles come from the server. */
  async offer(transcript, name, server) {
    this.clear();
    const turn = this.#turn;
    this.#text = transcript.text;
    const stem = name.replace(/\.[a-z][a-z0-9]{0,4}$/i, "") || "transcript";
    this.#put("txt", stem, `${transcript.text}\n`);
    this.#put("json", stem, `${JSON.stringify(transcript, null, 2)}\n`);
    const made = ["srt", "vtt"].map(async (kind) => {
      show(false, byId(`save-${kind}`));
      const text = await server.subtitles(transcript, kind);
      if (turn === this.#turn) this.#put(kind, stem, text);
    });
    show(true, byId("downloads"));
    await Promise.all(made).catch((error) => {
      if (turn === this.#turn) throw error;
    });
  }

  #put(kind, stem, text) {
    const address = URL.createObjectURL(new Blob([text], { type: `${KINDS[kind]};charset=utf-8` }));
    this.#addresses.push(address);
    const link = byId(`save-${kind}`);
    link.href = address;
    link.download = `${stem}.${kind}`;
    link.setAttribute("aria-label", `Save as ${link.textContent}, ${link.download}`);
    show(true, link);
  }

  async #copy() {
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(this.#text);
    } catch {
      said = "The browser does not permit copying";
    }
    byId("said").textContent = said;
    setTimeout(() => (byId("said").textContent = ""), 2500);
  }
}
