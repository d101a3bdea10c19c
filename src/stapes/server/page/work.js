// One recording on the page, from its first byte to its saved transcript.

import { byId, make, show } from "./dom.js";
import { Downloads } from "./downloads.js";
import { Peaks, readPeaks } from "./peaks.js";
import { note, Player } from "./player.js";
import { clock, timedParts } from "./times.js";
import { TranscriptView } from "./transcript.js";
import { Waveform } from "./waveform.js";

const NOT_PLAYABLE = "This browser cannot play this kind of file. The transcript is made all the same.";
const NOT_DRAWN = "This recording is too long to be drawn here; its parts still play when you click them.";

export class Work {
  segments = [];
  words = [];
  name = "";
  #server;
  #model = "";
  #transcript = null; // once it is complete
  #looking = new AbortController();

  constructor(server) {
    this.#server = server;
    const play = (seconds) => this.player.playFrom(seconds);
    this.waveform = new Waveform(byId("waveform"), play);
    this.transcript = new TranscriptView(play);
    this.downloads = new Downloads();
    this.player = new Player((seconds, isPlaying) => {
      if (this.waveform.isLive) return;
      this.waveform.time = seconds;
      this.transcript.at(seconds, isPlaying);
    });
    byId("zoom-in").addEventListener("click", () => this.waveform.zoom(-1));
    byId("zoom-out").addEventListener("click", () => this.waveform.zoom(1));
  }

  /** Show a new recording: state is "working" or "live". */
  begin({ name, title, model, state }) {
    this.#looking.abort();
    this.#transcript = null;
    Object.assign(this, { segments: [], words: [], name });
    this.#model = model;
    this.player.unload();
    this.waveform.reset({ isLive: state === "live" });
    this.transcript.clear();
    this.downloads.clear();
    this.warn([]);
    this.facts("");
    note("");
    show(false, byId("word-note"));
    if (state === "live") this.transcript.nothing("Speak now: the text comes here.");
    byId("title").textContent = title;
    this.#state(state);
    byId("stop").disabled = false;
    byId(state === "live" ? "stop" : "cancel").focus();
  }

  /** Back to the choice of a recording. */
  leave() {
    this.#looking.abort();
    this.#transcript = null;
    this.downloads.clear();
    this.player.unload();
    this.#state("idle");
  }

  /** Let the browser play and draw a file, as far as it can. */
  async hear(file) {
    const { signal } = (this.#looking = new AbortController());
    const peaks = new Peaks();
    const seconds = await this.player.load(file);
    if (signal.aborted) return;
    this.#setDuration(seconds);
    note(this.player.canPlay ? "" : NOT_PLAYABLE);
    this.waveform.peaks = peaks;
    const onGrowth = () => {
      if (signal.aborted) return;
      if (!this.player.canPlay) this.#setDuration(Math.max(this.player.duration, peaks.duration));
      this.waveform.draw();
    };
    const isDrawn = await readPeaks(file, peaks, { seconds, onGrowth, signal });
    if (!isDrawn && this.player.canPlay && !signal.aborted) note(NOT_DRAWN);
  }

  /** Show what the microphone hears. */
  hearLive(peaks) {
    this.waveform.peaks = peaks;
    this.waveform.time = peaks.duration;
  }

  /** A segment {start, end, text, language}, and its words if the server knows their times. */
  add(segment, words = []) {
    this.segments.push(segment);
    this.words.push(...words);
    const timed = { ...segment, parts: timedParts(segment, words) };
    this.waveform.segments.push(timed);
    this.transcript.add(timed);
    this.waveform.draw();
    if (segment.end > this.player.duration && !this.waveform.isLive) this.#setDuration(segment.end);
  }

  /** How far it is; null: nobody knows. */
  progress(fraction, sentence) {
    const bar = byId("progress");
    if (fraction === null) bar.removeAttribute("value");
    else bar.value = fraction;
    if (byId("phase").textContent !== sentence) byId("phase").textContent = sentence;
  }

  facts(...parts) {
    byId("facts").textContent = parts.filter(Boolean).join(" · ");
  }

  warn(sentences) {
    byId("warnings").replaceChildren(...sentences.map((sentence) => make("li", {}, sentence)));
    show(sentences.length > 0, byId("warnings"));
  }

  /** The transcript is complete, or as complete as it will be. */
  finish(transcript, { isWhole = true } = {}) {
    this.transcript.partial("", "");
    byId("title").textContent = this.name;
    this.#setDuration(this.player.duration || transcript.duration);
    const language = transcript.language ?? "";
    const shown = language.charAt(0).toUpperCase() + language.slice(1);
    const gap = isWhole ? "" : "incomplete";
    this.facts(clock(transcript.duration), shown, this.#model, gap);
    this.warn(transcript.warnings ?? []);
    this.transcript.nothing(!this.segments.length && isWhole ? "No speech was found." : "");
    show(this.segments.length > 0 && !this.words.length, byId("word-note"));
    this.#state("done");
    byId("title").focus();
    this.#transcript = transcript;
  }

  /** Offer the transcript as files, if there is one; rejects with a Problem without subtitles. */
  async save() {
    if (!this.#transcript || !this.segments.length) return;
    await this.downloads.offer(this.#transcript, this.name, this.#server);
  }

  #setDuration(seconds) {
    this.player.setDuration(seconds);
    this.waveform.duration = seconds;
    this.waveform.time = 0;
  }

  #state(state) {
    document.body.dataset.state = state;
    show(state === "idle", byId("source"));
    show(state !== "idle", byId("work"), byId("player"));
    show(state === "working", byId("progress-box"), byId("cancel"));
    show(state === "live", byId("stop"));
    show(state === "done", byId("again"));
  }
}
